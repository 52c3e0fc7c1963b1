package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"
)

const (
	fillWidth   = 64 // counters that a request makes
	fillCallers = 8
)

// fillAt makes a workload's counters in the server at an address. It does nothing for one that leaves them to chance.
func (w *Workload) fillAt(ctx context.Context, target string) error {
	if w.Scenario.Counters == 0 {
		return nil
	}
	open, err := dialGRPC(target, 2)
	if err != nil {
		return err
	}
	defer open.close()
	return w.fill(ctx, open)
}

// fill makes a workload's counters, each by one hit.
func (w *Workload) fill(ctx context.Context, to transport) error {
	var next atomic.Int64
	var filling sync.WaitGroup
	errs := make([]error, fillCallers)
	for caller := range fillCallers {
		filling.Go(func() {
			for first := range w.shares(&next) {
				if errs[caller] = w.makeCounters(ctx, to, caller, first); errs[caller] != nil {
					return
				}
			}
		})
	}
	filling.Wait()
	for _, err := range errs {
		if err != nil {
			return fmt.Errorf("make %d counters: %w", w.Scenario.Counters, err)
		}
	}
	return nil
}

// shares gives the first counters of requests that nobody else has taken.
func (w *Workload) shares(next *atomic.Int64) func(yield func(int) bool) {
	return func(yield func(int) bool) {
		for {
			first := int(next.Add(fillWidth)) - fillWidth
			if first >= w.Scenario.Counters || !yield(first) {
				return
			}
		}
	}
}

// makeCounters asks for the counters from the first on, again if the server can't answer: a second hit does no harm.
func (w *Workload) makeCounters(ctx context.Context, to transport, caller, first int) error {
	request := &ratelimit.RateLimitRequest{Domain: w.Domain}
	for i := first; i < min(first+fillWidth, w.Scenario.Counters); i++ {
		request.Descriptors = append(request.Descriptors, w.Scenario.Counter(i))
	}
	encoded, err := proto.Marshal(request)
	if err != nil {
		return err
	}
	into := new(answer)
	err = persist(ctx, func(ctx context.Context) error { return to.call(ctx, caller, &encoded, into) })
	if err == nil && into.statuses != len(request.Descriptors) {
		err = errStatuses
	}
	return err
}
