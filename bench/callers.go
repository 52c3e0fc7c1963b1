package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// errStatuses is a response that Envoy could not tell apart by descriptor.
var errStatuses = errors.New("an answer's statuses are not one a descriptor")

// callers are the goroutines that send a workload, each one request at a time.
type callers struct {
	count    int
	timeout  time.Duration // from the instant a request is due
	workload *Workload
	// call sends a request on the caller's connection and waits for the answer.
	call func(ctx context.Context, caller int, request *[]byte, into *answer) error
}

// tally is what callers saw. The zero value is nothing.
type tally struct {
	latency    Latencies // from due to answered or failed
	late       Latencies // from due to sent
	decisions  uint64    // requests answered
	over       uint64    // of them OVER_LIMIT
	errors     uint64
	firstError error
}

// run sends whatever falls due and returns when all of it is answered or has failed.
func (c callers) run(ctx context.Context, next arrivals) *tally {
	tallies := make([]tally, c.count)
	var done sync.WaitGroup
	for i := range tallies {
		done.Go(func() { c.send(ctx, i, next, &tallies[i]) })
	}
	done.Wait()
	sum := new(tally)
	for i := range tallies {
		sum.merge(&tallies[i])
	}
	return sum
}

// send is one caller. Its choice of requests is random, and the same in every run.
func (c callers) send(ctx context.Context, caller int, next arrivals, seen *tally) {
	random := rand.New(rand.NewPCG(uint64(caller), 0))
	requests := c.workload.Requests
	into := new(answer)
	for {
		due, more := next()
		if !more {
			return
		}
		seen.late.Record(time.Since(due))
		err := c.ask(ctx, due, func(ctx context.Context) error {
			return c.call(ctx, caller, &requests[random.IntN(len(requests))], into)
		})
		if err == nil && into.statuses != c.workload.Statuses {
			err = errStatuses
		}
		seen.latency.Record(time.Since(due))
		seen.count(into.code, err)
	}
}

// ask calls with the deadline that a request due then has. One whose deadline passed before a caller was free is not
// sent: its client has given up.
func (c callers) ask(ctx context.Context, due time.Time, call func(context.Context) error) error {
	ctx, cancel := context.WithDeadline(ctx, due.Add(c.timeout))
	defer cancel()
	if err := ctx.Err(); err != nil {
		return err
	}
	return call(ctx)
}

func (t *tally) count(code ratelimit.RateLimitResponse_Code, err error) {
	switch {
	case err != nil:
		t.errors++
		if t.firstError == nil {
			t.firstError = err
		}
	case code == ratelimit.RateLimitResponse_OVER_LIMIT:
		t.over++
		t.decisions++
	default:
		t.decisions++
	}
}

func (t *tally) merge(other *tally) {
	t.latency.Merge(&other.latency)
	t.late.Merge(&other.late)
	t.decisions += other.decisions
	t.over += other.over
	t.errors += other.errors
	if t.firstError == nil {
		t.firstError = other.firstError
	}
}
