package memstore_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/limiter"
	"github.com/envoy-rls/envoy-rls/pkg/memstore"
	"github.com/envoy-rls/envoy-rls/pkg/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(_ *testing.T, c *storetest.Clock) limiter.Store {
		if c == nil {
			return memstore.New(memstore.Options{})
		}
		return memstore.New(memstore.Options{Now: c.Now})
	})
}

func hit(key string, cost int64) *limiter.Batch {
	return &limiter.Batch{
		Hits: []limiter.Hit{{
			Key: key, Cost: cost, Charge: limiter.Together, Limit: &limiter.Limit{Requests: 5, Period: time.Minute},
		}},
		Decisions: make([]limiter.Decision, 1),
	}
}

func TestLooksAndGiveBacksMakeNoCounter(t *testing.T) {
	s := memstore.New(memstore.Options{})
	for _, cost := range []int64{0, -3} {
		if err := s.Decide(context.Background(), hit("a", cost)); err != nil {
			t.Fatal(err)
		}
	}
	if s.Len() != 0 {
		t.Errorf("there are %d counters, want none", s.Len())
	}
}

func TestStaleCountersMakeRoomForNewOnes(t *testing.T) {
	var c storetest.Clock
	c.Set(time.Unix(1_800_000_000, 0))
	s := memstore.New(memstore.Options{Now: c.Now})
	fill := func(name string) {
		for i := range 50_000 {
			if err := s.Decide(context.Background(), hit(fmt.Sprint(name, i), 1)); err != nil {
				t.Fatal(err)
			}
		}
	}
	fill("old")
	c.Advance(time.Hour)
	fill("new")
	if n := s.Len(); n > 52_000 {
		t.Errorf("%d counters are kept, of which 50000 matter", n)
	}
	if e := s.Evictions(); e != (memstore.Evictions{}) {
		t.Errorf("counters lost their count: %+v", e)
	}
}

// TestMemoryIsBounded fills a store far beyond its limit with counters of which some deny: those stay.
func TestMemoryIsBounded(t *testing.T) {
	const limit = 4 << 20
	var c storetest.Clock // stands still, as no minute may end meanwhile
	c.Set(time.Unix(1_800_000_000, 0))
	s := memstore.New(memstore.Options{MemoryLimit: limit, Now: c.Now})
	exhausted := func(i int) *limiter.Batch { return hit(fmt.Sprint("exhausted", i), 5) }
	for i := range 500 {
		if err := s.Decide(context.Background(), exhausted(i)); err != nil {
			t.Fatal(err)
		}
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range 200_000 {
		if err := s.Decide(context.Background(), hit(fmt.Sprint("flood", i), 1)); err != nil {
			t.Fatal(err)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 2*limit {
		t.Errorf("the store takes %d bytes, its limit is %d", grown, limit)
	}
	if e := s.Evictions(); e.WithRoom == 0 || e.Denying != 0 {
		t.Errorf("evicted: %+v", e)
	}
	for i := range 500 {
		b := exhausted(i)
		if err := s.Decide(context.Background(), b); err != nil {
			t.Fatal(err)
		}
		if b.Allowed {
			t.Fatalf("exhausted counter %d was forgotten", i)
		}
	}
}

func TestADenyingCounterGoesOnlyIfAllDeny(t *testing.T) {
	var c storetest.Clock
	c.Set(time.Unix(1_800_000_000, 0))
	s := memstore.New(memstore.Options{MemoryLimit: 1 << 18, Now: c.Now})
	for i := range 10_000 {
		if err := s.Decide(context.Background(), hit(fmt.Sprint(i), 5)); err != nil {
			t.Fatal(err)
		}
	}
	if e := s.Evictions(); e.Denying == 0 || e.WithRoom != 0 {
		t.Errorf("evicted: %+v", e)
	}
}
