package limiter_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// TestTheRoomOfADecisionIsWhatALookFindsThen: also where a charge saturates, or where only a part of it counts
// since it comes late.
func TestTheRoomOfADecisionIsWhatALookFindsThen(t *testing.T) {
	forEachAlgorithm(t, func(t *rapid.T, period time.Duration, algorithm string) {
		traffic(t, period, algorithm, func(s *step) {
			late := s.hit
			late.At = max(s.now-rapid.Int64Range(0, 2*period.Microseconds()).Draw(t, "late"), 1)
			for _, h := range []limiter.Hit{s.hit, late} {
				c := s.counter
				d := c.decide(h, s.now)
				if room := c.would(limiter.Hit{Limit: &s.limit}, s.now).Room; d.Room != room {
					t.Fatalf("at %d %+v under %+v leaves room for %d, and a look finds %d", s.now, h, s.limit, d.Room, room)
				}
			}
		})
	})
}

// TestRetriesUnderLongSlidingWindowsAreTrue has periods of which a millionth is no whole number of milliseconds.
func TestRetriesUnderLongSlidingWindowsAreTrue(t *testing.T) {
	for _, days := range []time.Duration{106, 107, 999} {
		rapid.Check(t, func(t *rapid.T) {
			traffic(t, days*24*time.Hour, "sliding_window", func(s *step) { s.retries(t) })
		})
	}
}

// TestABucketOfAValidLimitIsFullWhenItIsSaidTo has the slowest buckets that Validate takes, and some that it must not,
// with as much debt as they can have.
func TestABucketOfAValidLimitIsFullWhenItIsSaidTo(t *testing.T) {
	for _, l := range []limiter.Limit{
		{Algorithm: limiter.TokenBucket, Requests: 1, Burst: 1, Period: limiter.MaxPeriod},
		{Algorithm: limiter.TokenBucket, Requests: 1<<32 - 1, Burst: 1<<32 - 1, Period: limiter.MaxPeriod},
		{Algorithm: limiter.TokenBucket, Requests: 10, Burst: 19, Period: limiter.MaxPeriod},
		{Algorithm: limiter.LeakyBucket, Requests: 2, Burst: 20, Period: limiter.MaxPeriod / 10},
		{Algorithm: limiter.LeakyBucket, Requests: 2, Burst: 21, Period: limiter.MaxPeriod / 10},
	} {
		if l.Validate() != nil {
			continue
		}
		s := step{limit: l, now: 1.8e15, hit: limiter.Hit{Limit: &l, Cost: min(2*int64(l.Burst), limiter.MaxCost), Charge: limiter.ChargeDenied}}
		s.counter.decide(s.hit, s.now)
		s.decision = s.counter.decide(s.hit, s.now)
		full := s.now + s.decision.ResetAfter.Microseconds()
		if room := s.counter.would(limiter.Hit{Limit: &l}, full).Room; room != int64(l.Burst) {
			t.Errorf("under %+v a bucket in debt is said to be full after %s, and has room for %d then", l, s.decision.ResetAfter, room)
		}
	}
}

// TestAStepBackOfTheClockAdmitsNothingTwice: whatever was taken stays taken while the clock repeats itself.
func TestAStepBackOfTheClockAdmitsNothingTwice(t *testing.T) {
	for _, l := range tenPerMinute() {
		var c kept
		now := int64(1.8e15)
		all := limiter.Hit{Limit: &l, Cost: 10, Charge: limiter.Together}
		one := limiter.Hit{Limit: &l, Cost: 1, Charge: limiter.Together}
		if !c.decide(all, now).Allowed {
			t.Fatalf("%s: a fresh counter has no room", l.Algorithm)
		}
		for _, back := range []time.Duration{time.Microsecond, time.Second, time.Minute, time.Hour, 0} {
			if d := c.decide(one, now-back.Microseconds()); d.Allowed {
				t.Errorf("%s: %s back, one more is admitted", l.Algorithm, back)
			}
		}
	}
}

// TestAnEditedLimitKeepsTheCount lowers a limit below what is used, and raises it again.
func TestAnEditedLimitKeepsTheCount(t *testing.T) {
	for _, l := range tenPerMinute() {
		var c kept
		now := int64(1.8e15)
		c.decide(limiter.Hit{Limit: &l, Cost: 7, Charge: limiter.Together}, now)
		for _, edit := range []struct {
			requests uint32
			room     int64
		}{{10, 3}, {5, -2}, {0, -7}, {100, 93}, {10, 3}} {
			edited := l
			edited.Requests = edit.requests
			if l.Algorithm.HasBurst() {
				edited.Burst = edit.requests
			}
			d := c.decide(limiter.Hit{Limit: &edited}, now)
			if d.Room != edit.room || d.Allowed != (edit.room > 0) {
				t.Errorf("%s: of 7 used under a limit of %d there is room for %d", l.Algorithm, edit.requests, d.Room)
			}
		}
	}
}

// TestTheLargestNumbersAreExact: the last hit of the largest limit passes, and no more.
func TestTheLargestNumbersAreExact(t *testing.T) {
	for _, l := range tenPerMinute() {
		if l.Algorithm == limiter.SlidingLog {
			continue // its largest limit is MaxLog
		}
		l.Requests = 1<<32 - 1
		if l.Algorithm.HasBurst() {
			l.Burst = 1<<32 - 1
		}
		var c kept
		now := int64(1.8e15) // an edge of minutes
		for _, hit := range []struct {
			cost, room int64
			allowed    bool
		}{{limiter.MaxCost - 1, 1, true}, {2, 1, false}, {1, 0, true}, {1, 0, false}, {0, 0, false}, {-1, 1, true}, {1, 0, true}} {
			d := c.decide(limiter.Hit{Limit: &l, Cost: hit.cost, Charge: limiter.Together}, now)
			if d.Allowed != hit.allowed || d.Room != hit.room {
				t.Errorf("%s: cost %d is allowed %t and leaves %d, want %+v", l.Algorithm, hit.cost, d.Allowed, d.Room, hit)
			}
		}
	}
}

// tenPerMinute is such a limit of each algorithm.
func tenPerMinute() []limiter.Limit {
	var limits []limiter.Limit
	for i := range limiter.AlgorithmNames() {
		l := limiter.Limit{Algorithm: limiter.Algorithm(i), Requests: 10, Period: time.Minute}
		if l.Algorithm.HasBurst() {
			l.Burst = 10
		}
		limits = append(limits, l)
	}
	return limits
}
