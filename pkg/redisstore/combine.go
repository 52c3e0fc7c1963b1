package redisstore

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// The bounds of a call, during which Redis serves nobody else, and of what waits for one.
const (
	maxRequests = 128
	maxHits     = 512  // by their weight
	maxQueued   = 4096 // of one flow
	maxIdle     = 64   // flows that are kept, with their buffers, while nothing waits
)

// maxWorkers is more than there can be calls at once.
const maxWorkers = 1 << 16

// ErrQueueFull is the error for a request of a flow of which too many are waiting already.
var ErrQueueFull = notAsked("too many requests of the domain are waiting for it")

// combiner lets requests that arrive while a call is under way share the next one. It adds no delay: a
// request that finds a call to spare goes at once. Flows take turns, so that a flood of one delays the others
// by no more than a call.
type combiner struct {
	run      func(ctx context.Context, c *call) error
	inFlight func() int // how many calls may be under way now

	waiters sync.Pool // of *waiter
	calls   sync.Pool // of *call

	queued atomic.Int64 // requests that wait

	stop chan struct{} // closed by close
	wake chan struct{} // has an element for each worker that is to go on

	mu     sync.Mutex
	active int // calls under way
	idle   int // workers that wait to be woken
	flows  map[string]*flow
	turns  []*flow // those that have something waiting, in the order of their turns
}

// flow is the requests of one domain that wait: those of queue from next on, the oldest first.
type flow struct {
	name  string
	queue []*waiter
	next  int
}

func (f *flow) waiting() int { return len(f.queue) - f.next }

// take takes off the oldest.
func (f *flow) take() *waiter {
	w := f.queue[f.next]
	f.queue[f.next] = nil
	f.next++
	if f.next == len(f.queue) {
		f.queue, f.next = f.queue[:0], 0
	}
	return w
}

func newCombiner(
	run func(context.Context, *call) error, inFlight func() int, prefixOf func(*limiter.Hit) string,
) *combiner {
	return &combiner{
		run:      run,
		inFlight: inFlight,
		waiters:  sync.Pool{New: func() any { return newWaiter() }},
		calls:    sync.Pool{New: func() any { return newCall(prefixOf) }},
		flows:    map[string]*flow{},
		stop:     make(chan struct{}),
		wake:     make(chan struct{}, maxWorkers),
	}
}

// decide has b decided within a time, or before ctx ends. Nothing refers to b afterwards.
func (c *combiner) decide(ctx context.Context, b *limiter.Batch, within time.Duration) error {
	w, _ := c.waiters.Get().(*waiter)
	w.begin(b, time.Now().Add(within))
	if err := c.submit(w, b.Flow); err != nil {
		w.forget()
		c.waiters.Put(w)
		return err
	}
	w.timer.Reset(within)
	var err error
	select {
	case <-w.done:
		err = w.err
	case <-ctx.Done():
		err = ctx.Err()
	case <-w.timer.C:
		err = context.DeadlineExceeded
	}
	w.timer.Stop()
	w.forget()
	w.leave(c)
	return err
}

// submit queues w, and starts a call if there is one to spare.
func (c *combiner) submit(w *waiter, name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.flows[name]
	if f == nil {
		f = &flow{name: strings.Clone(name)}
		c.flows[f.name] = f
	}
	switch n := f.waiting(); {
	case n >= maxQueued:
		return ErrQueueFull
	case n == 0:
		c.turns = append(c.turns, f)
	}
	f.queue = append(f.queue, w)
	c.queued.Add(1)
	if c.active < c.inFlight() {
		c.active++
		c.startWorker()
	}
	return nil
}

// addQueued adds how many requests of each flow wait.
func (c *combiner) addQueued(to map[string]int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, f := range c.flows {
		to[name] += f.waiting()
	}
}

// startWorker has a call made, with mu held: by a worker that waits, if there is one, since its stack has grown to what a
// call needs.
func (c *combiner) startWorker() {
	if c.idle == 0 {
		go c.worker()
		return
	}
	c.idle--
	c.wake <- struct{}{}
}

func (c *combiner) worker() {
	for {
		c.work()
		select {
		case <-c.wake:
		case <-c.stop:
			return
		}
	}
}

// close ends the workers once nothing waits any more.
func (c *combiner) close() { close(c.stop) }

// work makes calls until nothing waits.
func (c *combiner) work() {
	call, _ := c.calls.Get().(*call)
	for c.gather(); c.take(call); c.gather() {
		err := c.runOnce(call)
		if errors.Is(err, errTryAgain) {
			c.runEach(call)
		}
		call.finish(func(w *waiter) { w.end(c, err) })
	}
	c.calls.Put(call)
}

// tryAgainAfter is how long a request waits whose keys are on their way.
const tryAgainAfter = time.Millisecond

// runEach makes a call for each request of a call that a cluster couldn't serve as a whole, since some of its keys are
// on their way to another node: those of a single request are mostly on one. It tries until a request would give up.
func (c *combiner) runEach(together *call) {
	call, _ := c.calls.Get().(*call)
	defer c.calls.Put(call)
	for _, w := range together.taken {
		if w.putOff {
			continue
		}
		w.like = nil
		call.taken = append(call.taken[:0], w)
		w.err = c.runOnce(call)
		for errors.Is(w.err, errTryAgain) && time.Until(w.deadline) > tryAgainAfter {
			time.Sleep(tryAgainAfter)
			call.reset()
			w.err = c.runOnce(call)
		}
		call.reset()
		clear(call.taken)
		call.taken = call.taken[:0]
		w.tried = true
	}
}

// gather lets goroutines that are ready to run go first, for as long as that brings more requests to share the
// call. It waits for nothing.
func (c *combiner) gather() {
	before, queued := int64(-1), c.queued.Load()
	for queued > before && queued < maxRequests {
		runtime.Gosched()
		before, queued = queued, c.queued.Load()
	}
}

// runOnce gives the call until the last of its requests would give up. A fault of ours fails the call, not the
// process.
func (c *combiner) runOnce(call *call) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("a fault in this program: %v", r)
		}
	}()
	var deadline time.Time
	if !call.fill() {
		return nil
	}
	for _, w := range call.taken {
		if w.deadline.After(deadline) {
			deadline = w.deadline
		}
	}
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	return c.run(ctx, call)
}

// take takes what waits for the call, a request of each flow in turn, after what the last call put off. It
// returns false, and the caller's call is no longer under way, if nothing waits.
func (c *combiner) take(call *call) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	hits := 0
	for len(c.turns) > 0 && len(call.taken) < maxRequests && hits < maxHits {
		w := c.next()
		call.taken = append(call.taken, w)
		hits += w.weight
	}
	if len(call.taken) == 0 {
		c.active--
		c.idle++
	}
	return len(call.taken) > 0
}

// next takes the oldest request of the flow whose turn it is.
func (c *combiner) next() *waiter {
	f := c.turns[0]
	c.turns = append(c.turns[:0], c.turns[1:]...)
	w := f.take()
	c.queued.Add(-1)
	switch {
	case f.waiting() > 0:
		c.turns = append(c.turns, f)
	case len(c.flows) > maxIdle:
		delete(c.flows, f.name)
	}
	return w
}
