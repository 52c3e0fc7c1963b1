package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// slowServer takes a millisecond for an answer, and freezes once. Its clock is that of a synctest bubble.
type slowServer struct {
	frozen, thawed time.Time
}

func (s slowServer) call(ctx context.Context, _ int, _ *[]byte, into *answer) error {
	answered := time.Now().Add(time.Millisecond)
	if now := time.Now(); !now.Before(s.frozen) && now.Before(s.thawed) {
		answered = s.thawed
	}
	select {
	case <-time.After(time.Until(answered)):
		*into = answer{statuses: 1}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// crewFor sends to a server that freezes two seconds from now.
func crewFor(count int, freeze time.Duration) callers {
	frozen := time.Now().Add(2 * time.Second)
	return callers{
		count:    count,
		timeout:  time.Second,
		workload: &Workload{Requests: [][]byte{nil}, Statuses: 1},
		call:     slowServer{frozen, frozen.Add(freeze)}.call,
	}
}

// everyMillisecond paces by the clock of the bubble.
func everyMillisecond() pace {
	return pace{steadyGap(1000), func(d time.Duration) { <-time.After(d) }}
}

func within(t *testing.T, what string, got, want time.Duration) {
	t.Helper()
	if tolerance := want / 20; got < want-tolerance || got > want+tolerance {
		t.Errorf("%s = %v, want about %v", what, got, want)
	}
}

func TestAnOpenLoopCountsAStallForEveryRequestThatFellDueInIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		crew := crewFor(64, 500*time.Millisecond)
		seen := crew.run(t.Context(), everyMillisecond().openLoop(t.Context(), 10*time.Second))
		if seen.errors != 0 || seen.decisions != 9999 {
			t.Errorf("%d decisions, %d errors, first: %v", seen.decisions, seen.errors, seen.firstError)
		}
		// 500 requests of 10,000 fell due in the stall, and waited for between 0 and 500 ms.
		within(t, "max", seen.latency.Percentile(100), 500*time.Millisecond)
		within(t, "p99", seen.latency.Percentile(99), 400*time.Millisecond)
		within(t, "p97", seen.latency.Percentile(97), 200*time.Millisecond)
		within(t, "p90", seen.latency.Percentile(90), time.Millisecond)
		// All but the 64 in flight waited for a free caller.
		within(t, "latest sent", seen.late.Percentile(100), 436*time.Millisecond)
	})
}

func TestAClosedLoopCountsAStallOncePerCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		crew := crewFor(8, 500*time.Millisecond)
		seen := crew.run(t.Context(), closedLoop(t.Context(), 10*time.Second))
		within(t, "max", seen.latency.Percentile(100), 500*time.Millisecond)
		within(t, "p99", seen.latency.Percentile(99), time.Millisecond)
		if seen.decisions < 70_000 || seen.late.Percentile(100) != 0 {
			t.Errorf("%d decisions, late by %v", seen.decisions, seen.late.Percentile(100))
		}
	})
}

func TestARequestNotAnsweredWithinItsTimeoutIsAnErrorOfThatLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		crew := crewFor(64, time.Hour)
		start := time.Now()
		seen := crew.run(t.Context(), everyMillisecond().openLoop(t.Context(), 4*time.Second))
		within(t, "decisions", time.Duration(seen.decisions), 2000)
		within(t, "errors", time.Duration(seen.errors), 2000)
		within(t, "max", seen.latency.Percentile(100), time.Second)
		within(t, "the run", time.Since(start), 5*time.Second)
	})
}

func TestARunEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, next := range map[string]func(context.Context, time.Duration) arrivals{
			"closed loop": closedLoop,
			"open loop":   everyMillisecond().openLoop,
		} {
			start := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			crewFor(4, 0).run(ctx, next(ctx, time.Hour))
			cancel()
			within(t, name, time.Since(start), 100*time.Millisecond)
		}
	})
}

func TestPoissonGapsHaveTheMeanAndTheSpreadOfTheirRate(t *testing.T) {
	const count = 100_000
	gap := poissonGap(1000)
	var sum time.Duration
	short := 0
	for range count {
		d := gap()
		sum += d
		if d < 693147*time.Nanosecond { // the median of an exponential distribution is its mean times ln 2
			short++
		}
	}
	within(t, "mean gap", sum/count, time.Millisecond)
	within(t, "gaps below the median", time.Duration(short), count/2)
}

func TestAnAnswerWithoutAStatusForEachDescriptorIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		crew := crewFor(1, 0)
		crew.workload.Statuses = 3
		seen := crew.run(t.Context(), closedLoop(t.Context(), 10*time.Millisecond))
		if seen.decisions != 0 || seen.errors != 10 || !errors.Is(seen.firstError, errStatuses) {
			t.Errorf("%d decisions, %d errors, first: %v", seen.decisions, seen.errors, seen.firstError)
		}
	})
}
