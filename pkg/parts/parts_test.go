package parts_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/envoy-rls/envoy-rls/pkg/limiter"
	"github.com/envoy-rls/envoy-rls/pkg/memstore"
	"github.com/envoy-rls/envoy-rls/pkg/parts"
	"github.com/envoy-rls/envoy-rls/pkg/storetest"
)

// byName spreads counters over three places.
func byName(h *limiter.Hit) int {
	sum := 0
	for i := range len(h.Key) {
		sum += int(h.Key[i])
	}
	return sum % 3
}

func over(clock *storetest.Clock) *parts.Store {
	o := memstore.Options{}
	if clock != nil {
		o.Now = clock.Now
	}
	return parts.New([]limiter.Store{memstore.New(o), memstore.New(o), memstore.New(o)}, byName)
}

func TestStore(t *testing.T) {
	storetest.RunWithoutClock(t, func(_ *testing.T, c *storetest.Clock) limiter.Store { return over(c) })
}

// TestABatchOverSeveralPlacesIsDecidedAsOne compares verdicts, rooms and what was charged. How long a bucket takes to
// be full may differ by what is less than a token.
func TestABatchOverSeveralPlacesIsDecidedAsOne(t *testing.T) {
	run, began := 0, time.Now()
	rapid.Check(t, func(t *rapid.T) {
		run++
		clock, model := &storetest.Clock{}, storetest.Model{}
		clock.Set(began)
		s := over(clock)
		for range rapid.IntRange(1, 8).Draw(t, "batches") {
			clock.Advance(time.Duration(rapid.Int64Range(0, 3e9).Draw(t, "pause")) * time.Microsecond)
			b := storetest.RandomBatch(t, run, began)
			for i := range b.Hits {
				b.Hits[i].At = 0 // a log whose last hit is ahead of now can't tell which one to give back
			}
			want := model.Decide(b, clock.Micros())
			if err := s.Decide(context.Background(), b); err != nil {
				t.Fatal(err)
			}
			for _, decisions := range [][]limiter.Decision{b.Decisions, want.Decisions} {
				for i := range decisions {
					decisions[i].ResetAfter, decisions[i].RetryAfter = 0, 0
				}
			}
			storetest.Compare(t, b, want)
		}
	})
}

// failing is a place that can't be asked.
type failing struct{}

var errAway = errors.New("away")

func (failing) Decide(_ context.Context, b *limiter.Batch) error {
	clear(b.Decisions)
	return errAway
}

func TestAPlaceThatFailsHurtsItsOwnCountersOnly(t *testing.T) {
	memory := memstore.New(memstore.Options{})
	s := parts.New([]limiter.Store{memory, failing{}}, func(h *limiter.Hit) int { return int(h.Key[0] - 'a') })
	limit := &limiter.Limit{Requests: 3, Period: time.Hour}
	ask := func(second *limiter.Limit) *limiter.Batch {
		b := &limiter.Batch{Decisions: make([]limiter.Decision, 3), Hits: []limiter.Hit{
			{Key: "a", Limit: limit, Cost: 1, Charge: limiter.Together},
			{Key: "a2", Limit: second, Cost: 1, Charge: limiter.Together, Group: 1},
			{Key: "b", Limit: limit, Cost: 1, Charge: limiter.Together, Group: 2},
		}}
		if err := s.Decide(context.Background(), b); !errors.Is(err, errAway) {
			t.Errorf("the error is %v", err)
		}
		if b.Decisions[2].State != limiter.Undecided {
			t.Errorf("the failing place's hit is %+v", b.Decisions[2])
		}
		return b
	}
	if b := ask(limit); b.Decisions[0].Room != 2 || !b.Allowed {
		t.Errorf("the decisions are %+v", b.Decisions)
	}
	if b := ask(&limiter.Limit{Period: time.Hour}); b.Decisions[0].Room != 2 || b.Allowed {
		t.Errorf("beside a denied hit the decisions are %+v", b.Decisions)
	}
}
