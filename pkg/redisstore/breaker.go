package redisstore

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// BreakerState is what a Store thinks of its server. Its numbers are those of the metric.
type BreakerState int32

// The states. While a breaker is open no request is sent; half open, it is being found out whether that is of use
// again.
const (
	BreakerClosed BreakerState = iota
	BreakerHalfOpen
	BreakerOpen
)

// String is the state in words.
func (s BreakerState) String() string {
	switch s {
	case BreakerClosed:
		return "closed"
	case BreakerHalfOpen:
		return "half open"
	}
	return "open"
}

// ErrBreakerOpen is the error for a request that was not sent, since the server has failed of late.
var ErrBreakerOpen = notAsked("the server has failed of late, and is asked again soon")

// When a breaker opens. Calls that time out count against it only after a while without any success, or by their
// share: a server that is late now and then must not make it flap.
const (
	inARow        = 5
	silence       = 200 * time.Millisecond
	fewestCalls   = 20 // in a second, of which half fail
	breakerWindow = time.Second
)

// How long a breaker waits before it probes: longer each time, by a random part less, so that many replicas do not
// come at once.
const (
	firstProbe = 200 * time.Millisecond
	lastProbe  = 1600 * time.Millisecond
)

// breaker keeps requests from a server that fails. Any number of goroutines may use it.
type breaker struct {
	probe   func(ctx context.Context) error
	changed func(s BreakerState, cause error) // in the order of the changes; may be nil
	state   atomic.Int32
	stop    context.Context // ended by close
	close   context.CancelFunc

	mu            sync.Mutex
	failedInARow  int
	succeeded     time.Time // last
	second        time.Time // when the present one began
	calls, failed int       // in it
}

func newBreaker(probe func(context.Context) error, changed func(BreakerState, error)) *breaker {
	b := &breaker{probe: probe, changed: changed, succeeded: time.Now()}
	b.stop, b.close = context.WithCancel(context.Background())
	return b
}

func (b *breaker) current() BreakerState { return BreakerState(b.state.Load()) }

// note is told how a call ended.
func (b *breaker) note(err error, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now.Sub(b.second) >= breakerWindow {
		b.second, b.calls, b.failed = now, 0, 0
	}
	b.calls++
	if err == nil {
		b.failedInARow, b.succeeded = 0, now
		return
	}
	b.failed++
	b.failedInARow++
	if b.current() == BreakerClosed && b.tooMany(err, now) {
		b.turn(BreakerOpen, err)
		go b.reopen()
	}
}

func (b *breaker) tooMany(err error, now time.Time) bool {
	if b.calls >= fewestCalls && 2*b.failed >= b.calls {
		return true
	}
	late := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
	return b.failedInARow >= inARow && (!late || now.Sub(b.succeeded) >= silence)
}

// turn changes the state; with mu held, so that changes are told in their order.
func (b *breaker) turn(s BreakerState, cause error) {
	b.state.Store(int32(s))
	if b.changed != nil {
		b.changed(s, cause)
	}
}

// reopen probes until the server can be used again.
func (b *breaker) reopen() {
	for wait := firstProbe; ; wait = min(2*wait, lastProbe) {
		select {
		case <-time.After(wait/2 + rand.N(wait/2)):
		case <-b.stop.Done():
			return
		}
		b.state.Store(int32(BreakerHalfOpen))
		err := b.probe(b.stop)
		if err != nil {
			b.state.Store(int32(BreakerOpen))
			continue
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.failedInARow, b.calls, b.failed, b.succeeded = 0, 0, 0, time.Now()
		b.turn(BreakerClosed, nil)
		return
	}
}
