package memstore_test

import (
	"context"
	"fmt"
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
	if n := s.Len(); n > 51_000 {
		t.Errorf("%d counters are kept, of which 50000 matter", n)
	}
	if s.Evicted() != 0 {
		t.Errorf("%d counters lost their count, want none", s.Evicted())
	}
}

func TestMemoryIsBounded(t *testing.T) {
	s := memstore.New(memstore.Options{MaxCounters: 10_000})
	for i := range 100_000 {
		if err := s.Decide(context.Background(), hit(fmt.Sprint(i), 1)); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.Len(); n > 10_000 {
		t.Errorf("%d counters are kept, want at most 10000", n)
	}
	if s.Evicted() == 0 {
		t.Error("counters lost their count, and that was not told")
	}
}
