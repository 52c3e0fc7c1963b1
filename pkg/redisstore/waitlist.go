package redisstore

import (
	"context"
	"time"
)

// expiries is the least time between two looks at who has waited for too long. A caller waits for longer than it should by
// no more than that.
const expiries = time.Millisecond

// waitlist is all those who wait for an end, in the order in which they came. One timer for all of them costs less than
// one for each.
type waitlist struct {
	first, last *waiter
	timer       *time.Timer
	fires       time.Time // when the timer does, or zero
}

// onExpiry has f called when it is time for expire, by a goroutine of its own.
func (l *waitlist) onExpiry(f func()) {
	l.timer = time.AfterFunc(time.Hour, f)
	l.timer.Stop()
}

func (l *waitlist) add(w *waiter) {
	w.waits, w.prev, w.next = true, l.last, nil
	if l.last == nil {
		l.first = w
	} else {
		l.last.next = w
	}
	l.last = w
	l.lookAt(w.deadline)
}

func (l *waitlist) remove(w *waiter) {
	if w.prev == nil {
		l.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		l.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.waits, w.prev, w.next = false, nil, nil
}

// lookAt has the timer fire at t or earlier.
func (l *waitlist) lookAt(t time.Time) {
	if l.fires.IsZero() || t.Before(l.fires) {
		l.fires = t
		l.timer.Reset(time.Until(t))
	}
}

// expire takes out those whose time is over, and returns them for their callers to be told.
func (l *waitlist) expire(now time.Time) (ended []*waiter) {
	var next time.Time
	for w := l.first; w != nil; {
		after := w.next
		switch {
		case !w.deadline.After(now):
			l.remove(w)
			w.forget()
			w.err = context.DeadlineExceeded
			ended = append(ended, w)
		case next.IsZero() || w.deadline.Before(next):
			next = w.deadline
		}
		w = after
	}
	l.fires = time.Time{}
	if l.first != nil {
		l.lookAt(now.Add(max(next.Sub(now), expiries)))
	}
	return ended
}
