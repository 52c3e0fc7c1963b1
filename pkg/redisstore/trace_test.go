package redisstore

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// ending is what Options.Trace was told.
type ending struct {
	lane     string
	requests int
	err      error
}

func TestTracesAreToldHowManyRequestsSharedACall(t *testing.T) {
	r := proctest.StartRedis(t)
	var mu sync.Mutex
	var endings []ending
	calls := 0
	s, err := Open(Options{
		Address: r.URL(), Timeout: 5 * time.Second,
		Called: func(int, time.Duration, time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			calls++
		},
		Trace: func(_ context.Context, lane string) func(int, error) {
			return func(requests int, err error) {
				mu.Lock()
				defer mu.Unlock()
				endings = append(endings, ending{lane, requests, err})
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var clients sync.WaitGroup
	for range 16 {
		clients.Go(func() {
			for range 20 {
				if err := s.Decide(context.Background(), batch("a", 1)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	clients.Wait()
	parts := 0.0 // each request's own of its call
	for _, e := range endings {
		if e.lane != "0" || e.requests < 1 || e.err != nil {
			t.Fatalf("it was told %+v", e)
		}
		parts += 1 / float64(e.requests)
	}
	if len(endings) != 320 || math.Abs(parts-float64(calls)) > 1e-6 {
		t.Errorf("%d endings are of %g calls; there were %d", len(endings), parts, calls)
	}
	endings = nil
	r.Kill()
	err = s.Decide(context.Background(), batch("a", 1))
	if len(endings) != 1 || endings[0].requests != 0 || !errors.Is(err, endings[0].err) {
		t.Errorf("of %v it was told %+v", err, endings)
	}
}
