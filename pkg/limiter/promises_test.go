package limiter_test

import (
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// exactShare is the share of the window before that still lies within the period, not rounded.
func exactShare(passed, period int64) *big.Rat { return big.NewRat(period-passed, period) }

// TestASlidingWindowIsOffTheExactEstimateByLittle: old hits never weigh less than they should, and no more than a
// millionth of them and what a millisecond is worth, plus what a long period is rounded by.
func TestASlidingWindowIsOffTheExactEstimateByLittle(t *testing.T) {
	for _, period := range append([]time.Duration{106 * 24 * time.Hour}, periods...) {
		ms := period.Milliseconds()
		slack := new(big.Rat).Add(big.NewRat(1, 1e6), big.NewRat(1, ms))
		if ms > 9e9 {
			millionth := new(big.Rat).SetInt(ceil(big.NewRat(ms, 1e6)))
			slack.Add(slack, millionth.Sub(big.NewRat(1, 1), millionth.Quo(big.NewRat(ms, 1e6), millionth)))
		}
		rapid.Check(t, func(t *rapid.T) {
			m := &windows{period: period.Microseconds(), share: exactShare}
			traffic(t, period, "sliding_window", func(s *step) {
				if s.decision.Charged {
					m.change(s.limit, s.now, s.hit.Cost)
				}
				most := m.room(s.limit, s.now)
				all := func(int64, int64) *big.Rat { return slack }
				least := new(big.Rat).Sub(most, m.old(s.now, all))
				room := big.NewInt(s.counter.would(limiter.Hit{Limit: &s.limit}, s.now).Room)
				if room.Cmp(floor(most)) > 0 || room.Cmp(floor(least)) < 0 {
					t.Fatalf("under %+v at %d there is room for %s, want from %s to %s", s.limit, s.now, room, floor(least), floor(most))
				}
			})
		})
	}
}

// idealBucket fills without steps.
type idealBucket struct {
	missing *big.Rat
	seen    int64
}

func (b *idealBucket) at(l limiter.Limit, now int64) *big.Rat {
	got := new(big.Rat).Mul(big.NewRat(max(now-b.seen, 0), l.Period.Microseconds()), new(big.Rat).SetInt64(int64(l.Requests)))
	missing := new(big.Rat).Sub(b.missing, got)
	if missing.Sign() < 0 {
		return new(big.Rat)
	}
	return missing
}

func (b *idealBucket) change(l limiter.Limit, now, n int64) {
	missing := new(big.Rat).Add(b.at(l, now), new(big.Rat).SetInt64(n))
	most := new(big.Rat).Add(size(l), size(l))
	if missing.Cmp(most) > 0 {
		missing = most
	}
	if missing.Sign() < 0 {
		missing = new(big.Rat)
	}
	b.missing, b.seen = missing, max(now, b.seen)
}

// TestABucketIsOffAnIdealOneByAMillionthOfItsLimit: it neither drifts over time nor over charges.
func TestABucketIsOffAnIdealOneByAMillionthOfItsLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		period := rapid.SampledFrom(periods).Draw(t, "period")
		l := drawLimit(t, "token_bucket", period)
		counter, ideal := kept{}, idealBucket{missing: new(big.Rat)}
		now := int64(1.8e15)
		slack := big.NewRat(int64(l.Requests), 1e6)
		for range rapid.IntRange(1, 50).Draw(t, "hits") {
			now += rapid.OneOf(rapid.Int64Range(0, 2000), rapid.Int64Range(0, period.Microseconds()/3),
				rapid.Int64Range(-period.Microseconds()/10, 0)).Draw(t, "pause")
			h := drawHit(t, &l)
			if counter.decide(h, now).Charged {
				ideal.change(l, now, h.Cost)
			}
			room := big.NewInt(counter.would(limiter.Hit{Limit: &l}, now).Room)
			want := new(big.Rat).Sub(size(l), ideal.at(l, now))
			least, most := floor(new(big.Rat).Sub(want, slack)), floor(new(big.Rat).Add(want, slack))
			if room.Cmp(least) < 0 || room.Cmp(most) > 0 {
				t.Fatalf("under %+v at %d there is room for %s, want from %s to %s", l, now, room, least, most)
			}
		}
	})
}

// promised is the most that may pass in a time from a first to a last hit.
func promised(l limiter.Limit, from, to int64) *big.Rat {
	requests, passed := new(big.Rat).SetInt64(int64(l.Requests)), big.NewRat(to-from, l.Period.Microseconds())
	switch l.Algorithm {
	case limiter.FixedWindow:
		return requests.Mul(requests, big.NewRat(2, 1))
	case limiter.SlidingWindow:
		return requests.Add(requests, new(big.Rat).Mul(requests, passed))
	case limiter.TokenBucket, limiter.LeakyBucket:
		millionth := big.NewRat(int64(l.Requests), 1e6)
		requests.Mul(requests, passed)
		return requests.Add(requests, millionth.Add(millionth, size(l)))
	case limiter.SlidingLog:
	}
	return requests
}

// TestNoPeriodAdmitsMoreThanIsPromised sums what was admitted in every stretch of less than a period.
func TestNoPeriodAdmitsMoreThanIsPromised(t *testing.T) {
	forEachAlgorithm(t, func(t *rapid.T, period time.Duration, algorithm string) {
		l := drawLimit(t, algorithm, period)
		us := period.Microseconds()
		var counter kept
		var admitted []charge
		now := int64(1.8e15)
		for range rapid.IntRange(1, 40).Draw(t, "hits") {
			edge := us - now%us
			now += rapid.OneOf(rapid.SampledFrom([]int64{0, 1, edge - 1, edge}), rapid.Int64Range(0, us/10)).Draw(t, "pause")
			h := limiter.Hit{
				Limit: &l, Charge: limiter.Together,
				Cost: 1 + rapid.OneOf(rapid.Int64Range(0, 3), rapid.Int64Range(0, int64(l.Requests))).Draw(t, "cost"),
			}
			if !counter.decide(h, now).Allowed {
				continue
			}
			admitted = append(admitted, charge{now, h.Cost})
			for first, c := range admitted {
				most := promised(l, c.at, now)
				if sum := total(admitted[first:]); now-c.at < us && new(big.Rat).SetInt64(sum).Cmp(most) > 0 {
					t.Fatalf("under %+v %d are admitted in %d µs, want at most %s", l, sum, now-c.at, floor(most))
				}
			}
		}
	})
}
