package storetest

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// decisions is how many are compared, unless DecisionsVariable says otherwise.
const decisions = 100_000

// DecisionsVariable is the environment variable for how many random decisions are compared.
const DecisionsVariable = "STORETEST_DECISIONS"

// agrees compares a store's decisions on random batches, while time passes, with those of a Model: every field
// of every decision, to the microsecond.
func agrees(t *testing.T, open Open) {
	want := decisions
	if text := os.Getenv(DecisionsVariable); text != "" {
		var err error
		if want, err = strconv.Atoi(text); err != nil {
			t.Fatalf("%s: %v", DecisionsVariable, err)
		}
	}
	r := &random{clock: &Clock{}, began: time.Now()}
	r.store = open(t, r.clock)
	for r.decided < want && !t.Failed() {
		rapid.Check(t, r.run)
	}
	t.Logf("%d decisions agree", r.decided)
}

// random is a store that random batches are decided by, and how many decisions there were.
type random struct {
	store   limiter.Store
	clock   *Clock
	began   time.Time
	runs    int
	decided int
}

func (r *random) run(t *rapid.T) {
	r.runs++ // each run has counters of its own
	r.clock.Set(r.began)
	model := Model{}
	for range rapid.IntRange(1, 8).Draw(t, "batches") {
		r.clock.Advance(time.Duration(rapid.Int64Range(-3e8, 3e9).Draw(t, "pause")) * time.Microsecond)
		b := RandomBatch(t, r.runs, r.began, r.clock.Micros())
		want := model.Decide(b, r.clock.Micros())
		if err := r.store.Decide(context.Background(), b); err != nil {
			t.Fatal(err)
		}
		Compare(t, b, want)
		r.decided += len(b.Hits)
	}
}

// Model is a store as it is meant: rows in a map, by the names of their counters.
type Model map[string]limiter.Row

// Decide decides a copy of b, and changes the rows that are charged.
func (m Model) Decide(b *limiter.Batch, now int64) *limiter.Batch {
	own := map[string]*limiter.Row{}
	rows := make([]*limiter.Row, len(b.Hits))
	for i, h := range b.Hits {
		if own[h.Key] == nil {
			row := m[h.Key]
			own[h.Key] = &row
		}
		rows[i] = own[h.Key]
	}
	want := &limiter.Batch{Hits: b.Hits, Decisions: make([]limiter.Decision, len(b.Hits))}
	limiter.Decide(want, rows, now)
	for i, d := range want.Decisions {
		if d.Charged {
			m[b.Hits[i].Key] = *rows[i]
		}
	}
	return want
}

// ModelStore is a Model by a clock, as a store. It drops no counter.
type ModelStore struct {
	Rows  Model
	Clock *Clock
}

// Decide implements limiter.Store.
func (s ModelStore) Decide(_ context.Context, b *limiter.Batch) error {
	want := s.Rows.Decide(b, s.Clock.Micros())
	copy(b.Decisions, want.Decisions)
	b.Allowed = want.Allowed
	return nil
}

// Compare reports how the decisions of got differ from those of want.
func Compare(t *rapid.T, got, want *limiter.Batch) {
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

// periods are long enough that no row expires of its own while a test runs.
var periods = []time.Duration{10 * time.Minute, time.Hour, 24 * time.Hour, 365 * 24 * time.Hour, limiter.MaxPeriod}

// RandomBatch draws a batch of up to five hits at now, in µs since the Unix epoch. Batches of one run, which began about
// then, share counters.
func RandomBatch(t *rapid.T, run int, began time.Time, now int64) *limiter.Batch {
	n := rapid.IntRange(1, 5).Draw(t, "hits")
	b := &limiter.Batch{Flow: "random", Hits: make([]limiter.Hit, n), Decisions: make([]limiter.Decision, n)}
	for i := range b.Hits {
		b.Hits[i] = randomHit(t, run, began)
		nameWindow(&b.Hits[i], now)
		if i > 0 && rapid.Bool().Draw(t, "same descriptor") {
			last := &b.Hits[i-1]
			b.Hits[i].Group, b.Hits[i].Role, b.Hits[i].Charge = last.Group, last.Role, last.Charge
			continue
		}
		b.Hits[i].Group = uint16(i)
	}
	return b
}

// nameWindow has the name of a named window's counter end with the window that now is in, as it does in the service: the store
// may drop it once its window has ended.
func nameWindow(h *limiter.Hit, now int64) {
	if h.Limit.Algorithm == limiter.NamedWindow {
		h.Key += fmt.Sprint("_", now/h.Limit.Period.Microseconds())
	}
}

// randomLimit is valid. Small numbers are likely, and all are possible.
func randomLimit(t *rapid.T) *limiter.Limit {
	numbers := rapid.OneOf(rapid.Uint32Range(0, 20), rapid.Uint32())
	return rapid.Custom(func(t *rapid.T) *limiter.Limit {
		l := &limiter.Limit{
			Algorithm: limiter.Algorithm(rapid.IntRange(0, int(limiter.NamedWindow)).Draw(t, "algorithm")),
			Requests:  numbers.Draw(t, "requests"),
			Period:    rapid.SampledFrom(periods).Draw(t, "period"),
		}
		if l.Algorithm.HasBurst() {
			l.Burst = numbers.Draw(t, "burst")
		} else if l.Validate() != nil {
			l.Requests %= limiter.MaxLog + 1 // some algorithms are for small limits
		}
		return l
	}).Filter(func(l *limiter.Limit) bool { return l.Validate() == nil }).Draw(t, "limit")
}

func randomHit(t *rapid.T, run int, began time.Time) limiter.Hit {
	limit := randomLimit(t)
	h := limiter.Hit{
		Key: fmt.Sprintf("random:%d:%d%s:%d", run, limit.Algorithm, limit.Period,
			rapid.IntRange(0, 1).Draw(t, "counter")),
		Limit: limit,
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
