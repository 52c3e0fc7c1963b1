//go:build !race

package rls

import (
	"context"
	"testing"
	"time"
)

// TestADecisionInMemoryAllocatesNothing is about reading, matching, deciding and answering. The race detector
// makes pools forget, so it isn't built with it.
func TestADecisionInMemoryAllocatesNothing(t *testing.T) {
	for _, c := range speedCases {
		s, requests := speedService(t), speedRequests(t, c.descriptors)
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		next := 0
		decide := func() {
			call := s.newCall()
			call.request.wire = append(call.request.wire, requests[next%len(requests)]...)
			next++
			if err := call.request.unmarshal(); err != nil {
				t.Fatal(err)
			}
			if err := s.answer(ctx, call); err != nil {
				t.Fatal(err)
			}
			call.release()
		}
		for range requests {
			decide()
		}
		if n := testing.AllocsPerRun(10*len(requests), decide); n != 0 {
			t.Errorf("%s: %v allocations", c.name, n)
		}
		cancel()
	}
}
