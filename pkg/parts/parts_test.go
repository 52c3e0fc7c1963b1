package parts_test

import (
	"context"
	"errors"
	"slices"
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
		clock, whole := &storetest.Clock{}, storetest.Model{}
		clock.Set(began)
		var places []limiter.Store
		for range 3 {
			places = append(places, storetest.ModelStore{Rows: storetest.Model{}, Clock: clock})
		}
		s := parts.New(places, byName)
		for range rapid.IntRange(1, 8).Draw(t, "batches") {
			clock.Advance(time.Duration(rapid.Int64Range(0, 3e9).Draw(t, "pause")) * time.Microsecond)
			b := storetest.RandomBatch(t, run, began, clock.Micros())
			undoable(b)
			want := whole.Decide(b, clock.Micros())
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

// undoable leaves out what shows of a charge that its part makes and the whole does not, when that has been given back: it may
// have filled the counter, so that what comes behind it is cut, and it has let a bucket leak at its own limit's rate.
func undoable(b *limiter.Batch) {
	const most = 1_000_000
	taken := map[string]bool{}
	b.Hits = slices.DeleteFunc(b.Hits, func(h limiter.Hit) bool {
		again := taken[h.Key] && (h.Limit.Algorithm.HasBurst() || h.Limit.Algorithm == limiter.SlidingLog)
		taken[h.Key] = true
		return again
	})
	b.Decisions = b.Decisions[:len(b.Hits)]
	for i := range b.Hits {
		h := &b.Hits[i]
		h.Cost = min(max(h.Cost, -most), most)
		if h.Limit.Algorithm.HasBurst() {
			l := *h.Limit
			l.Requests, l.Burst = 20, l.Burst%21
			h.Limit = &l
		}
		h.At = 0 // a log whose last hit is ahead of now can't tell which one to give back
	}
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
