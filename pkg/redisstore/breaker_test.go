package redisstore

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"
)

func TestWhenABreakerOpens(t *testing.T) {
	late, gone := context.DeadlineExceeded, io.EOF
	repeat := func(n int, every time.Duration, errs ...error) (steps []step) {
		for i := range n {
			steps = append(steps, step{every, errs[i%len(errs)]})
		}
		return steps
	}
	for _, c := range []struct {
		name  string
		steps []step
		want  BreakerState
	}{
		{"4 failures in a row", repeat(4, time.Millisecond, gone), BreakerClosed},
		{"5 failures in a row", repeat(5, time.Millisecond, gone), BreakerOpen},
		{"5 failures with a success between", append(repeat(4, time.Millisecond, gone), step{0, nil}, step{0, gone}), BreakerClosed},
		{"5 late ones within 100 ms", repeat(5, 20*time.Millisecond, late), BreakerClosed},
		{"10 late ones, over 200 ms", repeat(10, 20*time.Millisecond, late), BreakerOpen},
		{"every third one late for an hour", repeat(100_000, 30*time.Millisecond, nil, late, nil), BreakerClosed},
		{"half of 50 in a second", repeat(50, 10*time.Millisecond, nil, late), BreakerOpen},
		{"half of 48 in a second", repeat(48, 10*time.Millisecond, nil, late), BreakerClosed},
		{"half of 50 over 10 seconds", repeat(50, 200*time.Millisecond, nil, late), BreakerClosed},
	} {
		b := newBreaker(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, nil)
		now := time.Now()
		for _, s := range c.steps {
			now = now.Add(s.after)
			b.note(s.err, now)
		}
		if got := b.current(); got != c.want && (got != BreakerHalfOpen || c.want != BreakerOpen) {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		b.close()
	}
}

type step struct {
	after time.Duration
	err   error
}

func TestABreakerClosesAfterAGoodProbe(t *testing.T) {
	probes := make(chan error)
	states := make(chan BreakerState, 4)
	b := newBreaker(func(context.Context) error { return <-probes }, func(s BreakerState, _ error) { states <- s })
	defer b.close()
	for range inARow {
		b.note(io.EOF, time.Now())
	}
	probes <- errors.New("still away")
	if b.current() == BreakerClosed {
		t.Error("it closed after a bad probe")
	}
	probes <- nil
	if first, second := <-states, <-states; first != BreakerOpen || second != BreakerClosed {
		t.Errorf("it turned %s, then %s", first, second)
	}
}

func TestABreakerThatOpensAgainSoonWaitsForLonger(t *testing.T) {
	b := newBreaker(func(context.Context) error { return nil }, nil)
	defer b.close()
	now := time.Now()
	for _, c := range []struct {
		after, want time.Duration
	}{{0, firstProbe}, {time.Second, 2 * firstProbe}, {time.Second, 4 * firstProbe}, {2 * soon, firstProbe}} {
		now = now.Add(c.after)
		b.begin(now)
		if got := b.nextWait(); got < c.want/2 || got > c.want {
			t.Errorf("after %s it waits for %s, want up to %s", c.after, got, c.want)
		}
		b.closed = now
	}
}

// TestManyBreakersDoNotProbeAtOnce: those of all replicas open in the same moment.
func TestManyBreakersDoNotProbeAtOnce(t *testing.T) {
	const replicas, width = 1000, 10 * time.Millisecond
	together := map[time.Duration]int{}
	for range replicas {
		b := newBreaker(func(context.Context) error { return nil }, nil)
		b.begin(time.Now())
		at := b.nextWait()
		together[at/width]++
		together[(at+b.nextWait())/width]++ // the second probe
		b.close()
	}
	for slot, n := range together {
		if n > replicas/4 {
			t.Errorf("%d of %d replicas probe between %s and %s", n, replicas, slot*width, (slot+1)*width)
		}
	}
}
