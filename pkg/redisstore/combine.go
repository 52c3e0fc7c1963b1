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
// request that finds a call to spare goes at once. Flows take turns, and when more waits than a call takes, there is
// a call more for a flow of which nothing waits, so that a flood of one doesn't hold up the others.
type combiner struct {
	run      func(ctx context.Context, c *call) error
	inFlight func() int // how many calls may be under way now

	roundTrip atomic.Int64 // ns, about the shortest of late: others waited for a processor, not for the way. run keeps it

	waiters sync.Pool // of *waiter
	calls   sync.Pool // of *call

	queued atomic.Int64 // requests that wait

	stop chan struct{} // closed by close
	wake chan struct{} // has an element for each worker that is to go on

	mu      sync.Mutex
	active  int // calls under way
	idle    int // workers that wait to be woken
	waiting waitlist
	flows   map[string]*flow
	turns   []*flow // those that have something waiting, in the order of their turns
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
	c := &combiner{
		run:      run,
		inFlight: inFlight,
		waiters:  sync.Pool{New: func() any { return newWaiter() }},
		calls:    sync.Pool{New: func() any { return newCall(prefixOf) }},
		flows:    map[string]*flow{},
		stop:     make(chan struct{}),
		wake:     make(chan struct{}, maxWorkers),
	}
	c.waiting.onExpiry(c.expire)
	return c
}

// decide has b decided within a time, and before ctx's deadline, and returns how many requests shared the call. Nothing
// refers to b afterwards. If ctx is canceled before a call is made for b, it isn't counted.
func (c *combiner) decide(ctx context.Context, b *limiter.Batch, within time.Duration) (shared int, err error) {
	w, _ := c.waiters.Get().(*waiter)
	w.begin(ctx, b, time.Now(), within)
	if err := c.submit(w, b.Flow); err != nil {
		c.waiters.Put(w)
		return 0, err
	}
	<-w.done
	shared, err = w.shared, w.err
	w.leave(c)
	return shared, err
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
	n := f.waiting()
	switch {
	case n >= maxQueued:
		return ErrQueueFull
	case n == 0:
		c.turns = append(c.turns, f)
	}
	f.queue = append(f.queue, w)
	spare := c.inFlight() - c.active
	if n == 0 && c.queued.Load() >= maxRequests {
		spare++
	}
	c.queued.Add(1)
	c.waiting.add(w)
	if spare > 0 {
		c.active++
		c.startWorker()
	}
	return nil
}

// expire ends those who have waited for too long.
func (c *combiner) expire() {
	c.mu.Lock()
	ended := c.waiting.expire(time.Now())
	c.mu.Unlock()
	for _, w := range ended {
		w.done <- struct{}{}
	}
}

// end tells the callers of a call, if they still wait, how it ended, and leaves in it what it has put off.
func (c *combiner) end(call *call, err error) {
	shared := call.requests()
	call.ended = call.finish(call.ended[:0])
	c.mu.Lock()
	for _, w := range call.ended {
		if w.tell = w.waits; w.tell {
			c.waiting.remove(w)
			w.end(shared, err)
		}
	}
	c.mu.Unlock()
	for _, w := range call.ended {
		if w.tell {
			w.done <- struct{}{}
		}
		w.leave(c)
	}
	clear(call.ended)
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

// work makes calls until nothing waits, or too many are under way.
func (c *combiner) work() {
	call, _ := c.calls.Get().(*call)
	for c.gather(); c.take(call); c.gather() {
		err := c.runOnce(call)
		if errors.Is(err, errTryAgain) {
			c.runEach(call)
		}
		c.end(call, err)
		if c.surplus(call) {
			break
		}
	}
	c.calls.Put(call)
}

// surplus tells whether there is a call more than there should be. Then the caller's, unless it has put something off,
// is no longer under way.
func (c *combiner) surplus(call *call) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(call.taken) > 0 || c.active <= c.inFlight() {
		return false
	}
	c.active--
	c.idle++
	return true
}

// tryAgainAfter is how long a request waits whose keys are on their way.
const tryAgainAfter = time.Millisecond

// runEach makes a call for each request of a call that a cluster couldn't serve as a whole, since some of its keys are
// on their way to another node: those of a single request are mostly on one. It tries until a request would give up.
func (c *combiner) runEach(together *call) {
	call, _ := c.calls.Get().(*call)
	defer c.calls.Put(call)
	for _, w := range together.taken {
		if w.putOff || w.late {
			continue
		}
		w.like = nil
		call.taken = append(call.taken[:0], w)
		w.triedErr = c.runOnce(call)
		for errors.Is(w.triedErr, errTryAgain) && time.Until(w.deadline) > tryAgainAfter {
			time.Sleep(tryAgainAfter)
			call.reset()
			w.triedErr = c.runOnce(call)
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

// runOnce gives the call as long as the most patient of its requests, from now on: what they have waited for others is
// not the server's fault. A fault of ours fails the call, not the process.
func (c *combiner) runOnce(call *call) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("a fault in this program: %v", r)
		}
	}()
	if !call.fill() {
		return nil
	}
	first := call.taken[0]
	came, within := first.came, first.within
	for _, w := range call.taken[1:] {
		if w.came.Before(came) {
			came = w.came
		}
		within = max(within, w.within)
	}
	call.came = came
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	return c.run(ctx, call)
}

// take takes what waits for the call, a request of each flow in turn, after what the last call put off. It
// returns false, and the caller's call is no longer under way, if nothing waits. What is too late comes along without a
// place in the call: were it asked for, a flood's oldest would keep Redis busy with what nobody waits for any more.
func (c *combiner) take(call *call) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	hits, requests, now := 0, len(call.taken), time.Now()
	for len(c.turns) > 0 && requests < maxRequests && hits < maxHits {
		w := c.next()
		call.taken = append(call.taken, w)
		if w.late = w.isLate(now, time.Duration(c.roundTrip.Load())); !w.late {
			requests++
			hits += w.weight
		}
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
