package storetest

import (
	"context"
	"fmt"
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
	for a := range limiter.NamedWindow + 1 {
		name := fmt.Sprint(a, int(a))
		limit := &limiter.Limit{Algorithm: a, Requests: limiter.MaxLog, Period: limiter.MaxPeriod}
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

// lateHits: of a hit that comes late, a part may not count any more. Many that come at once are still many, each of
// which leaves that part out.
func lateHits(t *testing.T, open Open) {
	clock := &Clock{}
	clock.Set(start.Add(59 * time.Minute))
	store := open(t, clock)
	for _, c := range []struct {
		name string
		late time.Duration
		cost int64
		room int64
	}{
		// A token came back meanwhile, so that each takes four of five.
		{"token_bucket", 3600 * time.Millisecond, 5, 1000 - callers*4},
		// Each takes a sixtieth, being of the window before. 64 of them round up to two.
		{"sliding_window", time.Hour, 1, 10 - 2},
	} {
		limit := &limiter.Limit{Requests: 10, Period: time.Hour}
		limit.Algorithm, _ = limiter.ParseAlgorithm(c.name)
		if limit.Algorithm.HasBurst() {
			limit.Requests, limit.Burst = 1000, 1000
		}
		at := clock.Now().Add(-c.late).UnixMicro()
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				decideOne(t, store, limiter.Hit{Key: c.name, Limit: limit, Cost: c.cost, At: at, Charge: limiter.Together})
			})
		}
		wg.Wait()
		if room := decideOne(t, store, limiter.Hit{Key: c.name, Limit: limit}).Decisions[0].Room; room != c.room {
			t.Errorf("%s: after %d late hits there is room for %d, want %d", c.name, callers, room, c.room)
		}
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
