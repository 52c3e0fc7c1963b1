package memstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/limiter"
	"github.com/envoy-rls/envoy-rls/pkg/memstore"
	"github.com/envoy-rls/envoy-rls/pkg/storetest"
)

func TestCountersAreSweptAndDeletedWhileOthersAreCounted(t *testing.T) {
	s := memstore.New(memstore.Options{})
	decide := func(name string) limiter.Decision {
		b := hit(name, 1)
		if err := s.Decide(context.Background(), b); err != nil {
			t.Error(err)
		}
		return b.Decisions[0]
	}
	for i := range 3000 {
		decide(fmt.Sprint("1:d", i))
	}
	decide("2:other")
	var counting sync.WaitGroup
	counting.Go(func() {
		for i := range 3000 {
			decide(fmt.Sprint("2:x", i))
		}
	})
	seen := map[string]bool{}
	err := s.Sweep(t.Context(), "1#", func(name string) (drop, more bool) {
		seen[name] = true
		return strings.HasSuffix(name, "7"), true
	})
	counting.Wait()
	if err != nil || len(seen) != 3000 || s.Len() != 2700+1+3000 {
		t.Errorf("%d were seen, %d are left, %v", len(seen), s.Len(), err)
	}
	visits := 0
	err = s.Sweep(t.Context(), "12", func(string) (drop, more bool) { visits++; return true, false })
	if err != nil || visits != 1 || s.Len() != 5700 {
		t.Errorf("%d were seen, %d are left, %v", visits, s.Len(), err)
	}
	n, err := s.Delete(t.Context(), []limiter.Hit{{Key: "2:x0"}, {Key: "2:x1"}, {Key: "2:none"}})
	if err != nil || n != 2 || decide("2:x0").Room != 4 {
		t.Errorf("%d were deleted, %v", n, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Sweep(ended, "12", func(string) (drop, more bool) { return false, true }); !errors.Is(err, context.Canceled) {
		t.Errorf("a sweep for nobody ends with %v", err)
	}
}

func TestASweepSeesNoStaleCounter(t *testing.T) {
	var c storetest.Clock
	c.Set(time.Unix(1_800_000_000, 0))
	s := memstore.New(memstore.Options{Now: c.Now})
	if err := s.Decide(t.Context(), hit("1:a", 1)); err != nil {
		t.Fatal(err)
	}
	c.Advance(time.Hour)
	err := s.Sweep(t.Context(), "1", func(name string) (drop, more bool) {
		t.Errorf("%s is seen", name)
		return false, true
	})
	if err != nil {
		t.Error(err)
	}
}
