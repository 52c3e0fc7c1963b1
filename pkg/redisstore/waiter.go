package redisstore

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// waiter is a request in the combiner's hands, and how its caller learns of the end.
type waiter struct {
	weight   int // of its hits, in those that cost the least
	deadline time.Time
	timer    *time.Timer
	done     chan struct{}
	err      error
	like     *waiter      // another one of its group, or nil
	putOff   bool         // until the next call
	tried    bool         // by itself, so that err says how that ended
	holders  atomic.Int32 // its caller and the combiner: the last to leave gives it back

	mu      sync.Mutex     // held while the combiner uses the batch
	batch   *limiter.Batch // the caller's, or nil once it has left
	decided bool
}

func newWaiter() *waiter {
	w := &waiter{done: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
	w.timer.Stop()
	return w
}

// begin makes w wait for b, which forget lets go of.
func (w *waiter) begin(b *limiter.Batch, deadline time.Time) {
	w.batch, w.deadline, w.weight = b, deadline, 0
	for i := range b.Hits {
		w.weight += weight(b.Hits[i].Limit)
	}
	w.err, w.decided, w.tried = nil, false, false
	w.holders.Store(2)
}

// weight is about how many times as long as the quickest one Redis works on a hit: a log is read as a whole.
func weight(l *limiter.Limit) int {
	if l.Algorithm == limiter.SlidingLog {
		return 1 + int(l.Requests)/4
	}
	return 1
}

// forget is how a caller takes its batch back. It waits while the batch is in use, which is never for long.
func (w *waiter) forget() {
	w.mu.Lock()
	w.batch = nil
	w.mu.Unlock()
}

// addTo adds the request to a call, unless its caller has left: then it isn't counted.
func (w *waiter) addTo(c *call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.batch != nil {
		w.putOff = !c.add(w, w.batch.Hits)
	}
}

// decide decides hits, which are the batch's without their keys. If its caller has left, the decisions go to
// waste, but not the changes of the rows.
func (w *waiter) decide(hits []limiter.Hit, rows []*limiter.Row, now int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := limiter.Batch{Hits: hits}
	if w.batch != nil {
		b.Decisions = w.batch.Decisions
	} else {
		b.Decisions = make([]limiter.Decision, len(hits))
	}
	limiter.Decide(&b, rows, now)
	if w.batch != nil {
		w.batch.Allowed = b.Allowed
	}
	w.decided = true
}

// end tells the caller, if it still waits, how the request ended.
func (w *waiter) end(c *combiner, err error) {
	if !w.decided && !w.tried {
		w.err = err
	}
	w.done <- struct{}{}
	w.leave(c)
}

// leave gives w back once both its caller and the combiner are done with it.
func (w *waiter) leave(c *combiner) {
	if w.holders.Add(-1) > 0 {
		return
	}
	select {
	case <-w.done:
	default:
	}
	w.like = nil
	c.waiters.Put(w)
}
