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
	fewestCalls   = 50 // in a second, of which half fail
	breakerWindow = time.Second
)

// How long a breaker waits before it probes: longer each time, by a random part less, so that many replicas do not
// come at once. One that opens again soon after it has closed goes on from there, so that it doesn't flap. The client
// library, too, waits for up to a second, after as many failed dials as it may have connections.
const (
	firstProbe = 200 * time.Millisecond
	lastProbe  = time.Second
	soon       = 10 * time.Second
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
	succeeded     time.Time     // last
	second        time.Time     // when the present one began
	calls, failed int           // in it
	wait          time.Duration // before the next probe
	closed        time.Time     // last
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
		b.begin(now)
		go b.reopen()
	}
}

// begin has the probing begin, with mu held: anew, unless the breaker has closed not long ago.
func (b *breaker) begin(now time.Time) {
	if now.Sub(b.closed) > soon {
		b.wait = firstProbe
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
	for {
		select {
		case <-time.After(b.nextWait()):
		case <-b.stop.Done():
			return
		}
		b.state.Store(int32(BreakerHalfOpen))
		if b.probe(b.stop) == nil {
			b.mu.Lock()
			defer b.mu.Unlock()
			now := time.Now()
			b.failedInARow, b.calls, b.failed, b.succeeded, b.closed = 0, 0, 0, now, now
			b.turn(BreakerClosed, nil)
			return
		}
		b.state.Store(int32(BreakerOpen))
	}
}

func (b *breaker) nextWait() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	wait := b.wait
	b.wait = min(2*wait, lastProbe)
	return wait/2 + rand.N(wait/2)
}
