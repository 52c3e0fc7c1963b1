package decisionlog

import (
	"bytes"
	"math"
	"sync/atomic"
	"time"
)

// rate allows so many in a second of its clock, which began once and does not step.
type rate struct {
	limit uint64
	began time.Time
	state atomic.Uint64 // the present second << 32 | how many it has had
}

// allow takes one of the second of an instant, or of a later one that others have come to.
func (r *rate) allow(at time.Time) bool {
	second := uint64(max(at.Sub(r.began), 0)/time.Second) << 32
	for {
		before := r.state.Load()
		next := before + 1
		switch {
		case second > before: // its second is a later one
			next = second | 1
		case before&math.MaxUint32 >= r.limit:
			return false
		}
		if r.state.CompareAndSwap(before, next) {
			return true
		}
	}
}

// queue is where lines wait. It is an io.Writer that takes a line each time, and never waits itself.
type queue struct {
	waiting chan []byte
	dropped atomic.Int64
}

// Write implements io.Writer.
func (q *queue) Write(line []byte) (int, error) {
	select {
	case q.waiting <- bytes.Clone(line):
	default:
		q.dropped.Add(1)
	}
	return len(line), nil
}
