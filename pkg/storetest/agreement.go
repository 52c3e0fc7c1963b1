package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// agrees compares a store's decisions on random batches, while time passes, with those of limiter.Decide on
// rows in a map: every field of every decision, to the microsecond.
func agrees(t *testing.T, open Open) {
	clock, began := &Clock{}, time.Now()
	store := open(t, clock)
	run := 0
	rapid.Check(t, func(t *rapid.T) {
		run++ // each run has counters of its own
		clock.Set(began)
		model := map[string]limiter.Row{}
		for range rapid.IntRange(1, 8).Draw(t, "batches") {
			clock.Advance(time.Duration(rapid.Int64Range(-3e8, 3e9).Draw(t, "pause")) * time.Microsecond)
			b := randomBatch(t, run, began)
			want := modelDecide(model, b, clock.Micros())
			if err := store.Decide(context.Background(), b); err != nil {
				t.Fatal(err)
			}
			compare(t, b, want)
		}
	})
}

func compare(t *rapid.T, got, want *limiter.Batch) {
	if got.Allowed != want.Allowed {
		t.Errorf("admitted: %t, want %t", got.Allowed, want.Allowed)
	}
	for i := range want.Decisions {
		if got.Decisions[i] != want.Decisions[i] {
			t.Errorf("hit %d %+v under %+v:\n got %+v\nwant %+v", i, want.Hits[i], *want.Hits[i].Limit,
				got.Decisions[i], want.Decisions[i])
		}
	}
}

// modelDecide decides a copy of b on the model's rows, of which only those change that are charged.
func modelDecide(model map[string]limiter.Row, b *limiter.Batch, now int64) *limiter.Batch {
	own := map[string]*limiter.Row{}
	rows := make([]*limiter.Row, len(b.Hits))
	for i, h := range b.Hits {
		if own[h.Key] == nil {
			row := model[h.Key]
			own[h.Key] = &row
		}
		rows[i] = own[h.Key]
	}
	want := &limiter.Batch{Hits: b.Hits, Decisions: make([]limiter.Decision, len(b.Hits))}
	limiter.Decide(want, rows, now)
	for i, d := range want.Decisions {
		if d.Charged {
			model[b.Hits[i].Key] = *rows[i]
		}
	}
	return want
}

// periods are long enough that no row expires of its own while a test runs.
var periods = []time.Duration{10 * time.Minute, time.Hour, 24 * time.Hour, 365 * 24 * time.Hour, limiter.MaxPeriod}

func randomBatch(t *rapid.T, run int, began time.Time) *limiter.Batch {
	n := rapid.IntRange(1, 5).Draw(t, "hits")
	b := &limiter.Batch{Flow: "random", Hits: make([]limiter.Hit, n), Decisions: make([]limiter.Decision, n)}
	for i := range b.Hits {
		b.Hits[i] = randomHit(t, run, began)
		if i > 0 && rapid.Bool().Draw(t, "same descriptor") {
			last := &b.Hits[i-1]
			b.Hits[i].Group, b.Hits[i].Role, b.Hits[i].Charge = last.Group, last.Role, last.Charge
			continue
		}
		b.Hits[i].Group = uint16(i)
	}
	return b
}

func randomHit(t *rapid.T, run int, began time.Time) limiter.Hit {
	period := rapid.IntRange(0, len(periods)-1).Draw(t, "period")
	h := limiter.Hit{
		Key: fmt.Sprintf("random:%d:%d:%d", run, period, rapid.IntRange(0, 1).Draw(t, "counter")),
		Limit: &limiter.Limit{
			Requests: rapid.OneOf(rapid.Uint32Range(0, 20), rapid.Uint32()).Draw(t, "requests"),
			Period:   periods[period],
		},
		Cost: rapid.OneOf(rapid.Int64Range(-5, 12), rapid.Int64Range(-limiter.MaxCost, limiter.MaxCost)).
			Draw(t, "cost"),
		Role:     limiter.Role(rapid.IntRange(0, 2).Draw(t, "role")),
		Charge:   limiter.Charge(rapid.IntRange(0, 3).Draw(t, "charge")),
		PassFull: rapid.Bool().Draw(t, "pass full"),
	}
	if rapid.IntRange(0, 4).Draw(t, "late") == 0 {
		h.At = began.UnixMicro() + rapid.Int64Range(-3e9, 3e9).Draw(t, "at")
	}
	return h
}
