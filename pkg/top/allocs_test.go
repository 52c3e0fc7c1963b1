//go:build !race

package top_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/envoy-rls/envoy-rls/pkg/memstore"
	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

// TestLookingAtACallAllocatesNothing has more values than are kept. What a call of ShouldRateLimit allocates anyway is what
// it does without an observer.
func TestLookingAtACallAllocatesNothing(t *testing.T) {
	for _, of := range []func(i int) string{
		func(i int) string { return fmt.Sprint("user=", i) },
		func(i int) string { return fmt.Sprint("none=", i) },
	} {
		w := start(t)
		alone, watched := allocations(t, of, nil), allocations(t, of, func(_ context.Context, o rls.Outcome) { w.top.Observe(o) })
		if watched > alone {
			t.Errorf("a call like %s allocates %v times, and %v when it is looked at", of(1), alone, watched)
		}
	}
}

func allocations(t *testing.T, of func(i int) string, observe func(context.Context, rls.Outcome)) float64 {
	t.Helper()
	s := rls.New(memstore.New(memstore.Options{}), rls.Options{Observe: observe})
	s.SetRules(compile(t))
	next := 0
	ask := func() {
		if _, err := s.ShouldRateLimit(context.Background(), request(of(next%2000))); err != nil {
			t.Fatal(err)
		}
		next++
	}
	for range 4000 {
		ask()
	}
	return testing.AllocsPerRun(10_000, ask)
}
