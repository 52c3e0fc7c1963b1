package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// The bounds of a call, during which Redis serves nobody else, and of what waits for one.
const (
	maxRequests = 128
	maxHits     = 512  // by their weight
	maxQueued   = 4096 // of one flow
	maxIdle     = 64   // flows that are kept, with their buffers, while nothing waits
)

// ErrQueueFull is the error for a request of a flow of which too many are waiting already.
var ErrQueueFull = errors.New("too many requests of the domain are waiting for the store")

// combiner lets requests that arrive while a call is under way share the next one. It adds no delay: a
// request that finds a call to spare goes at once. Flows take turns, so that a flood of one delays the others
// by no more than a call.
type combiner struct {
	run      func(ctx context.Context, c *call) error
	inFlight func() int                // how many calls may be under way now
	prefixOf func(*limiter.Hit) string // what its key begins with

	waiters sync.Pool // of *waiter
	calls   sync.Pool // of *call

	mu     sync.Mutex
	active int // calls under way
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
		prefixOf: prefixOf,
		waiters:  sync.Pool{New: func() any { return newWaiter() }},
		calls:    sync.Pool{New: func() any { return newCall() }},
		flows:    map[string]*flow{},
	}
}

// decide has b decided by the deadline, or before ctx ends. Nothing refers to b afterwards: what is still
// under way then works on a copy.
func (c *combiner) decide(ctx context.Context, b *limiter.Batch, deadline time.Time) error {
	w, _ := c.waiters.Get().(*waiter)
	w.copyOf(b, c.prefixOf)
	w.deadline = deadline
	if err := c.submit(w, b.Flow); err != nil {
		c.waiters.Put(w)
		return err
	}
	w.timer.Reset(time.Until(deadline))
	var err error
	select {
	case <-w.done:
		err = w.result(b)
	case <-ctx.Done():
		err = ctx.Err()
	case <-w.timer.C:
		err = context.DeadlineExceeded
	}
	w.timer.Stop()
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
	if c.active < c.inFlight() {
		c.active++
		go c.work()
	}
	return nil
}

// work makes calls until nothing waits.
func (c *combiner) work() {
	call, _ := c.calls.Get().(*call)
	for c.take(call) {
		call.encode()
		err := c.runOnce(call)
		for i := range call.groups {
			for _, w := range call.groups[i].waiters {
				w.end(c, err)
			}
		}
		call.reset()
	}
	c.calls.Put(call)
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
	for i := range call.groups {
		for _, w := range call.groups[i].waiters {
			if w.deadline.After(deadline) {
				deadline = w.deadline
			}
		}
	}
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	return c.run(ctx, call)
}

// take fills the call with what waits, a request of each flow in turn. It returns false, and the caller's
// call is no longer under way, if nothing does.
func (c *combiner) take(call *call) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	requests, hits := 0, 0
	for len(c.turns) > 0 && requests < maxRequests && hits < maxHits {
		w := c.next()
		if w.gone.Load() {
			w.end(c, nil) // its caller has given up, so it is not counted
			continue
		}
		call.add(w)
		requests++
		hits += w.weight
	}
	if requests == 0 {
		c.active--
	}
	return requests > 0
}

// next takes the oldest request of the flow whose turn it is.
func (c *combiner) next() *waiter {
	f := c.turns[0]
	c.turns = append(c.turns[:0], c.turns[1:]...)
	w := f.take()
	switch {
	case f.waiting() > 0:
		c.turns = append(c.turns, f)
	case len(c.flows) > maxIdle:
		delete(c.flows, f.name)
	}
	return w
}

// waiter is a request in the combiner's hands: a copy of its batch, and how its caller learns of the end.
type waiter struct {
	batch    limiter.Batch
	buffer   []byte // names of counters, which the batch's hits alias; then what like returns
	likeFrom int
	alone    bool // it can't share a group
	weight   int  // of its hits, in those that cost the least
	deadline time.Time

	done    chan struct{}
	timer   *time.Timer
	err     error
	decided bool
	gone    atomic.Bool  // its caller waits no longer
	holders atomic.Int32 // its caller and the combiner: the last to leave gives it back
}

func newWaiter() *waiter {
	w := &waiter{done: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
	w.timer.Stop()
	return w
}

// copyOf makes w a copy of b, whose counters have their keys for names.
func (w *waiter) copyOf(b *limiter.Batch, prefixOf func(*limiter.Hit) string) {
	w.buffer = w.buffer[:0] // where it moves as it grows, earlier names keep the old place
	w.batch.Hits = append(w.batch.Hits[:0], b.Hits...)
	w.batch.Decisions = append(w.batch.Decisions[:0], b.Decisions...)
	w.alone, w.weight = false, 0
	for i := range w.batch.Hits {
		h := &w.batch.Hits[i]
		first := len(w.buffer)
		w.buffer = append(append(w.buffer, prefixOf(h)...), h.Key...)
		h.Partition = ""
		h.Key = unsafe.String(unsafe.SliceData(w.buffer[first:]), len(w.buffer)-first)
		w.weight += weight(h.Limit)
		w.alone = w.alone || h.Cost < 0 || h.At != 0 || repeats(w.batch.Hits, i)
	}
	w.likeFrom = len(w.buffer)
	for i := range w.batch.Hits {
		h := &w.batch.Hits[i]
		w.buffer = append(w.buffer, byte(len(h.Key)), byte(len(h.Key)>>8))
		w.buffer = append(w.buffer, h.Key...)
		w.buffer = appendTerms(appendLimit(w.buffer, h.Limit), h)
	}
	w.err, w.decided = nil, false
	w.gone.Store(false)
	w.holders.Store(2)
}

// weight is about how many times as long as the quickest one Redis works on a hit: a log is read as a whole.
func weight(l *limiter.Limit) int {
	if l.Algorithm == limiter.SlidingLog {
		return 1 + int(l.Requests)/4
	}
	return 1
}

// repeats tells whether an earlier hit has the counter of hit i.
func repeats(hits []limiter.Hit, i int) bool {
	for j := range i {
		if hits[j].Key == hits[i].Key {
			return true
		}
	}
	return false
}

// like is equal for requests that the script may decide as one group.
func (w *waiter) like() string {
	return unsafe.String(unsafe.SliceData(w.buffer[w.likeFrom:]), len(w.buffer)-w.likeFrom)
}

// end tells the caller, if it still waits, how the request ended.
func (w *waiter) end(c *combiner, err error) {
	if !w.decided {
		w.err = err
	}
	w.done <- struct{}{}
	w.leave(c)
}

// result copies the decisions to the caller's batch.
func (w *waiter) result(b *limiter.Batch) error {
	if !w.decided {
		return w.err
	}
	copy(b.Decisions, w.batch.Decisions)
	b.Allowed = w.batch.Allowed
	return nil
}

// leave gives w back once both its caller and the combiner are done with it.
func (w *waiter) leave(c *combiner) {
	w.gone.Store(true)
	if w.holders.Add(-1) > 0 {
		return
	}
	select {
	case <-w.done:
	default:
	}
	c.waiters.Put(w)
}
