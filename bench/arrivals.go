package main

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// arrivals says when requests fall due. Each call gives a caller its next one; false ends the run. A caller may call
// it while others do.
type arrivals func() (due time.Time, more bool)

// closedLoop makes a request due as soon as a caller is free, for so long from the first one. A server that slows down is
// asked less often, so its latency looks better than what clients with a will of their own would meet.
func closedLoop(ctx context.Context, long time.Duration) arrivals {
	end := sync.OnceValue(func() time.Time { return time.Now().Add(long) })
	return func() (time.Time, bool) {
		end := end()
		now := time.Now()
		return now, now.Before(end) && ctx.Err() == nil
	}
}

// pace is an open loop: requests fall due whether or not earlier ones were answered.
type pace struct {
	gap   func() time.Duration // from one request to the next
	pause func(time.Duration)
}

// openLoop starts to give out what falls due for so long from now, in order, each to the first free caller. If none is
// free, due times wait their turn and are not moved: latency counts from them.
func (p pace) openLoop(ctx context.Context, long time.Duration) arrivals {
	start := time.Now()
	end := start.Add(long)
	dues := make(chan time.Time)
	go func() {
		defer close(dues)
		for due := start.Add(p.gap()); due.Before(end) && ctx.Err() == nil; due = due.Add(p.gap()) {
			if early := time.Until(due); early > 0 {
				p.pause(early)
			}
			select {
			case dues <- due:
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() (time.Time, bool) {
		due, more := <-dues
		return due, more
	}
}

// steadyGap spaces requests evenly.
func steadyGap(rate float64) func() time.Duration {
	gap := time.Duration(float64(time.Second) / rate)
	return func() time.Duration { return gap }
}

// poissonGap makes arrivals independent of each other, as those of many clients are. It is one goroutine's.
func poissonGap(rate float64) func() time.Duration {
	random := rand.New(rand.NewPCG(1, 2))
	return func() time.Duration { return time.Duration(random.ExpFloat64() / rate * float64(time.Second)) }
}

// pauseExactly is what time.Sleep is not: exact to about 0.1 ms. Go's timers are rounded to a millisecond while the
// program is idle, which would be counted as latency of the server. It blocks a thread; callers that have work go first.
func pauseExactly(d time.Duration) {
	runtime.Gosched()
	left := syscall.NsecToTimespec(d.Nanoseconds())
	_ = syscall.Nanosleep(&left, nil) // a signal that ends it early costs at most a request sent early
}
