package redisstore

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// waiter is a request in the combiner's hands, and how its caller learns of the end.
type waiter struct {
	ctx      context.Context
	weight   int // of its hits, in those that cost the least
	came     time.Time
	within   time.Duration
	deadline time.Time
	like     *waiter      // another one of its group, or nil
	late     bool         // so that it is not asked for
	putOff   bool         // until the next call
	tried    bool         // by itself
	triedErr error        // how that ended
	holders  atomic.Int32 // its caller and the combiner: the last to leave gives it back

	mu      sync.Mutex     // held while the combiner uses the batch
	batch   *limiter.Batch // the caller's, or nil once it has left
	decided bool

	// The end, which is told once: by whoever takes w out of the waitlist.
	waits      bool
	tell       bool    // the caller, once the list's lock is free
	prev, next *waiter // in the list
	err        error
	shared     int // how many requests had the call that decided it
	done       chan struct{}
}

func newWaiter() *waiter { return &waiter{done: make(chan struct{}, 1)} }

// begin makes w wait for b, within a time and no longer than ctx.
func (w *waiter) begin(ctx context.Context, b *limiter.Batch, now time.Time, within time.Duration) {
	w.ctx, w.batch, w.came, w.within, w.deadline, w.weight = ctx, b, now, within, now.Add(within), 0
	if d, ok := ctx.Deadline(); ok && d.Before(w.deadline) {
		w.deadline = d
	}
	for i := range b.Hits {
		w.weight += weight(b.Hits[i].Limit)
	}
	w.err, w.shared, w.decided, w.tried, w.late = nil, 0, false, false, false
	w.holders.Store(2)
}

// weight is about how many times as long as the quickest one Redis works on a hit: a log is read as a whole.
func weight(l *limiter.Limit) int {
	if l.Algorithm == limiter.SlidingLog {
		return 1 + int(l.Requests)/4
	}
	return 1
}

// forget takes the batch back for its caller. It waits while the batch is in use, which is never for long.
func (w *waiter) forget() {
	w.mu.Lock()
	w.batch = nil
	w.mu.Unlock()
}

// isLate tells whether w's caller would not live to see the answer of a call: half its time is over, and what is left is
// less than a round trip and a bit.
func (w *waiter) isLate(now time.Time, roundTrip time.Duration) bool {
	return w.deadline.Sub(now) < min(roundTrip*5/4, w.within/2)
}

// errLate is the error for a request that has waited for too long to be asked for.
var errLate = fmt.Errorf("%w while others were asked for: %w", context.DeadlineExceeded, limiter.ErrNotAsked)

// addTo adds the request to a call, unless it is late or its caller has left: then it isn't counted.
func (w *waiter) addTo(c *call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.batch != nil && !w.late && w.ctx.Err() == nil {
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

// end notes how the request ended, whose call was shared by some.
func (w *waiter) end(shared int, err error) {
	if w.tried {
		shared, err = 1, w.triedErr
	}
	switch {
	case w.decided:
		w.shared = shared
	case w.late:
		w.err = errLate
	case w.ctx.Err() != nil:
		w.err = w.ctx.Err()
	default:
		w.err = err
	}
}

// leave gives w back once both its caller and the combiner are done with it.
func (w *waiter) leave(c *combiner) {
	if w.holders.Add(-1) > 0 {
		return
	}
	w.ctx, w.batch, w.like = nil, nil, nil
	c.waiters.Put(w)
}
