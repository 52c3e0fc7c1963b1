package storetest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// relations compares a store's decisions with its own on changed traffic. They need no model of what is right.
func relations(t *testing.T, open Open) {
	for _, r := range []struct {
		name  string
		check func(*rapid.T, *twice)
	}{
		{"a counter that has gone stale decides as a new one", staleAsNew},
		{"a batch of distinct counters decides as its hits one by one", splitAsWhole},
		{"a look at another counter changes no decision", lookedAsNot},
		{"a limit that was changed and back keeps the count", changedAndBack},
	} {
		t.Run(r.name, func(t *testing.T) {
			clock, began := &Clock{}, time.Now()
			store, run := open(t, clock), 0
			rapid.Check(t, func(t *rapid.T) {
				run++ // each run has counters of its own
				clock.Set(began)
				r.check(t, &twice{store: store, clock: clock, name: fmt.Sprintf("%s:%d:", r.name, run)})
			})
		})
	}
}

// twice plays the same traffic twice, on counters whose names differ, with a change in between.
type twice struct {
	store limiter.Store
	clock *Clock
	name  string
}

// decide decides hits in one request. side tells the two plays apart.
func (w *twice) decide(t *rapid.T, side string, hits []limiter.Hit) *limiter.Batch {
	b := &limiter.Batch{Flow: "relations", Hits: slices.Clone(hits), Decisions: make([]limiter.Decision, len(hits))}
	for i := range b.Hits {
		b.Hits[i].Key = w.name + side + b.Hits[i].Key
		nameWindow(&b.Hits[i], w.clock.Micros())
	}
	if err := w.store.Decide(context.Background(), b); err != nil {
		t.Fatal(err)
	}
	return b
}

// same reports where two plays of the same hits differ.
func (w *twice) same(t *rapid.T, got, want []limiter.Decision) {
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("hit %d:\n got %+v\nwant %+v", i, got[i], want[i])
		}
	}
}

// pause lets time pass, and now and then steps back.
func (w *twice) pause(t *rapid.T) {
	w.clock.Advance(time.Duration(rapid.Int64Range(-3e8, 3e9).Draw(t, "pause")) * time.Microsecond)
}

// hitOf draws a hit on one counter.
func hitOf(t *rapid.T, l *limiter.Limit) limiter.Hit {
	return limiter.Hit{
		Key: "counter", Limit: l, Cost: rapid.Int64Range(-3, 12).Draw(t, "cost"),
		Charge:   limiter.Charge(rapid.IntRange(0, 3).Draw(t, "charge")),
		PassFull: rapid.Bool().Draw(t, "pass full"),
	}
}

// staleAsNew: once a row is as good as none, the store may drop it or keep it.
func staleAsNew(t *rapid.T, w *twice) {
	limit := randomLimit(t)
	if limit.Requests == 0 {
		return // without tokens a bucket that was used stays so, and is given up after a period
	}
	model, stale := Model{}, map[string]int64{}
	for range rapid.IntRange(1, 4).Draw(t, "hits") {
		w.pause(t)
		used := w.decide(t, "used:", []limiter.Hit{hitOf(t, limit)})
		if key := used.Hits[0].Key; model.Decide(used, w.clock.Micros()).Decisions[0].Charged {
			row := model[key]
			stale[key] = limiter.Expires(limit, &row, w.clock.Micros())
		}
	}
	for _, at := range stale {
		w.clock.Advance(time.Duration(max(at-w.clock.Micros(), 0)) * time.Microsecond)
	}
	for range rapid.IntRange(1, 4).Draw(t, "later hits") {
		hits := []limiter.Hit{hitOf(t, limit)}
		w.same(t, w.decide(t, "used:", hits).Decisions, w.decide(t, "new:", hits).Decisions)
		w.clock.Advance(time.Duration(rapid.Int64Range(0, 3e9).Draw(t, "pause")) * time.Microsecond)
	}
}

// splitAsWhole: hits that are charged each for itself have nothing to do with each other.
func splitAsWhole(t *rapid.T, w *twice) {
	limits := rapid.SliceOfN(rapid.Custom(randomLimit), 2, 5).Draw(t, "limits")
	for range rapid.IntRange(1, 4).Draw(t, "batches") {
		w.pause(t)
		hits := make([]limiter.Hit, len(limits))
		for i, l := range limits {
			hits[i] = hitOf(t, l)
			hits[i].Key, hits[i].Group, hits[i].Charge = fmt.Sprint("counter", i), uint16(i), 0
		}
		whole := w.decide(t, "whole:", hits)
		for i := range hits {
			w.same(t, w.decide(t, "split:", hits[i:i+1]).Decisions, whole.Decisions[i:i+1])
		}
	}
}

// lookedAsNot: a look takes nothing and, being a shadow, denies nothing.
func lookedAsNot(t *rapid.T, w *twice) {
	limits := rapid.SliceOfN(rapid.Custom(randomLimit), 1, 4).Draw(t, "limits")
	look := limiter.Hit{Key: "looked at", Limit: randomLimit(t), Group: 100, Role: limiter.Shadow}
	for range rapid.IntRange(1, 4).Draw(t, "batches") {
		w.pause(t)
		hits := make([]limiter.Hit, len(limits))
		for i, l := range limits {
			hits[i] = hitOf(t, l)
			hits[i].Key, hits[i].Group = fmt.Sprint("counter", i), uint16(i)
			hits[i].Role = limiter.Role(rapid.IntRange(0, 2).Draw(t, "role"))
		}
		place := rapid.IntRange(0, len(hits)).Draw(t, "place of the look")
		without := w.decide(t, "without:", hits)
		with := w.decide(t, "with:", slices.Insert(slices.Clone(hits), place, look))
		if with.Allowed != without.Allowed {
			t.Errorf("admitted: %t with a look, %t without", with.Allowed, without.Allowed)
		}
		w.same(t, slices.Delete(with.Decisions, place, place+1), without.Decisions)
	}
}

// changedAndBack: a counter knows what was taken, and not under which limit. Numbers are such that nothing
// saturates: beyond a debt or a log of twice the limit, it does matter.
func changedAndBack(t *rapid.T, w *twice) {
	before := randomLimit(t)
	numbers := rapid.Uint32Range(20, limiter.MaxLog)
	before.Requests = numbers.Draw(t, "requests")
	changed := *before
	changed.Requests = numbers.Draw(t, "other requests")
	if before.Algorithm.HasBurst() {
		before.Burst, changed.Burst = numbers.Draw(t, "burst"), numbers.Draw(t, "other burst")
	}
	both := func(hit limiter.Hit) {
		hits := []limiter.Hit{hit}
		w.same(t, w.decide(t, "changed:", hits).Decisions, w.decide(t, "control:", hits).Decisions)
	}
	for range rapid.IntRange(1, 4).Draw(t, "hits") {
		w.pause(t)
		hit := hitOf(t, before)
		hit.Charge = limiter.Together
		both(hit)
	}
	// The last of them is now, since a bucket fills at the rate of the limit that asks.
	both(limiter.Hit{Key: "counter", Limit: before, Cost: 1, Charge: limiter.ChargeDenied})
	for range rapid.IntRange(0, 4).Draw(t, "hits under the other limit") {
		hit := limiter.Hit{Key: "counter", Limit: &changed, Cost: rapid.Int64Range(0, 4).Draw(t, "cost"), Charge: limiter.Together}
		if w.decide(t, "changed:", []limiter.Hit{hit}).Decisions[0].Charged {
			hit.Limit, hit.Charge = before, limiter.ChargeDenied
			w.decide(t, "control:", []limiter.Hit{hit})
		}
	}
	for range rapid.IntRange(0, 2).Draw(t, "looks under the other limit") {
		w.pause(t)
		w.decide(t, "changed:", []limiter.Hit{{Key: "counter", Limit: &changed}})
	}
	for range rapid.IntRange(1, 4).Draw(t, "later hits") {
		both(hitOf(t, before))
		w.pause(t)
	}
}
