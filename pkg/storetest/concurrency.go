package storetest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

const (
	callers = 64
	each    = 100
)

// load calls do from many goroutines, and waits for all of them.
func load(do func(caller, i int)) {
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			for i := range each {
				do(caller, i)
			}
		})
	}
	wg.Wait()
}

func decideOne(t *testing.T, s limiter.Store, hits ...limiter.Hit) *limiter.Batch {
	b := &limiter.Batch{Flow: "load", Hits: hits, Decisions: make([]limiter.Decision, len(hits))}
	for i := range b.Hits {
		b.Hits[i].Group = uint16(i)
	}
	if err := s.Decide(context.Background(), b); err != nil {
		t.Errorf("deciding: %v", err)
	}
	return b
}

// exact has a limit of every algorithm of which nothing comes back while the test runs.
func exact(t *testing.T, open Open) {
	store := open(t, nil)
	for i, name := range limiter.AlgorithmNames() {
		limit := &limiter.Limit{Algorithm: limiter.Algorithm(i), Requests: limiter.MaxLog, Period: limiter.MaxPeriod}
		if limit.Algorithm.HasBurst() {
			limit.Burst = limiter.MaxLog
		}
		var admitted atomic.Int64
		load(func(_, _ int) {
			if decideOne(t, store, limiter.Hit{Key: name, Limit: limit, Cost: 1, Charge: limiter.Together}).Allowed {
				admitted.Add(1)
			}
		})
		if admitted.Load() != limiter.MaxLog {
			t.Errorf("%s: admitted %d of %d, want exactly %d", name, admitted.Load(), callers*each, limiter.MaxLog)
		}
	}
}

// allOrNothing: of many requests that meet a wide and a narrow limit, those that the narrow one refuses
// must leave the wide one alone.
func allOrNothing(t *testing.T, open Open) {
	store := open(t, nil)
	wide := &limiter.Limit{Requests: 5000, Period: limiter.MaxPeriod}
	narrow := &limiter.Limit{Requests: 7, Period: limiter.MaxPeriod}
	var admitted atomic.Int64
	load(func(caller, _ int) {
		name := "narrow:" + string(rune('a'+caller%8))
		b := decideOne(t, store,
			limiter.Hit{Key: "wide", Limit: wide, Cost: 1, Charge: limiter.Together},
			limiter.Hit{Key: name, Limit: narrow, Cost: 1, Charge: limiter.Together})
		if b.Allowed {
			admitted.Add(1)
		}
	})
	look := decideOne(t, store, limiter.Hit{Key: "wide", Limit: wide})
	if admitted.Load() != 8*7 || look.Decisions[0].Room != 5000-8*7 {
		t.Errorf("admitted %d and left %d, want %d and %d", admitted.Load(), look.Decisions[0].Room, 8*7, 5000-8*7)
	}
}

// reusedNames: a hit's key may alias a buffer that its caller writes again.
func reusedNames(t *testing.T, open Open) {
	store := open(t, nil)
	limit := &limiter.Limit{Requests: 5, Period: 24 * time.Hour}
	buffer := []byte("name-0")
	for i := range 10 {
		buffer[5] = byte('0' + i)
		name := aliased(buffer)
		decideOne(t, store, limiter.Hit{Key: name, Limit: limit, Cost: 1, Charge: limiter.Together})
		decideOne(t, store, limiter.Hit{Key: name, Limit: limit, Cost: 1, Charge: limiter.Together})
	}
	for _, name := range []string{"name-0", "name-4", "name-9"} {
		if room := decideOne(t, store, limiter.Hit{Key: name, Limit: limit}).Decisions[0].Room; room != 3 {
			t.Errorf("counter %s has room for %d, want 3", name, room)
		}
	}
}

func aliased(b []byte) string { return unsafe.String(&b[0], len(b)) }
