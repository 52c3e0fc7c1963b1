package limiter_test

import (
	"math/big"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// model is an algorithm as one would explain it, slow and in exact numbers. It shares nothing with a kernel.
type model interface {
	// room is how many hits still fit at now.
	room(l limiter.Limit, now int64) *big.Rat
	// change charges n at now, or gives back -n.
	change(l limiter.Limit, now, n int64)
}

// charge is a number of hits at an instant.
type charge struct{ at, n int64 }

func total(charges []charge) int64 {
	var sum int64
	for _, c := range charges {
		sum += c.n
	}
	return sum
}

// takeBack takes n off the latest charges for which ok holds.
func takeBack(charges []charge, n int64, ok func(charge) bool) {
	for i := len(charges) - 1; i >= 0 && n > 0; i-- {
		if ok(charges[i]) {
			taken := min(n, charges[i].n)
			charges[i].n -= taken
			n -= taken
		}
	}
}

// windows is a list of all charges that there ever were. A clock that steps back does not leave the window of
// the latest charge.
type windows struct {
	charges []charge
	latest  int64
	period  int64
	// share is how much of the window before still counts; nil is nothing.
	share func(passed, period int64) *big.Rat
}

// window is when the window that is in force at now began.
func (m *windows) window(now int64) int64 {
	t := max(now, m.latest)
	return t - t%m.period
}

func (m *windows) since(from int64) []charge {
	var found []charge
	for _, c := range m.charges {
		if c.at >= from && c.at < from+m.period {
			found = append(found, c)
		}
	}
	return found
}

func (m *windows) room(l limiter.Limit, now int64) *big.Rat {
	began := m.window(now)
	used := new(big.Rat).SetInt64(total(m.since(began)))
	if m.share != nil {
		used.Add(used, m.old(now, m.share))
	}
	return used.Sub(new(big.Rat).SetInt64(int64(l.Requests)), used)
}

// old is what the window before counts.
func (m *windows) old(now int64, share func(passed, period int64) *big.Rat) *big.Rat {
	began := m.window(now)
	n := new(big.Rat).SetInt64(total(m.since(began - m.period)))
	return n.Mul(n, share(max(now-began, 0), m.period))
}

// roundedShare is the share of the window before that still lies within the period, as it is documented: time
// passes in whole milliseconds, and the share that is gone is rounded down to a millionth. Beyond 9e9 ms, a
// millionth of the period is a whole number of milliseconds, rounded up.
func roundedShare(passed, period int64) *big.Rat {
	ms := passed / 1000
	millionth := big.NewRat(period/1000, 1e6)
	if period/1000 > 9e9 {
		millionth = new(big.Rat).SetInt(ceil(millionth))
	}
	gone := floor(new(big.Rat).Quo(big.NewRat(ms, 1), millionth))
	return new(big.Rat).Sub(big.NewRat(1, 1), big.NewRat(gone.Int64(), 1e6))
}

func (m *windows) change(_ limiter.Limit, now, n int64) {
	began := m.window(now)
	if n < 0 {
		takeBack(m.charges, -n, func(c charge) bool { return c.at >= began })
		return
	}
	n = min(n, limiter.MaxCost-total(m.since(began)))
	if n > 0 {
		m.latest = max(now, m.latest)
		m.charges = append(m.charges, charge{m.latest, n})
	}
}

// log is the instants of all hits. What has passed out of the period when the list changes is gone for good,
// also for a clock that steps back.
type log struct {
	hits   []int64
	period int64
}

func (m *log) at(now int64) []int64 {
	var found []int64
	for _, at := range m.hits {
		if at+m.period > now {
			found = append(found, at)
		}
	}
	return found
}

func (m *log) room(l limiter.Limit, now int64) *big.Rat {
	return new(big.Rat).SetInt64(int64(l.Requests) - int64(len(m.at(now))))
}

func (m *log) change(l limiter.Limit, now, n int64) {
	hits := m.at(now)
	switch have := int64(len(hits)); {
	case n < 0 && have > 0:
		m.hits = hits[:max(have+n, 0)]
	case n > 0 && have < 2*int64(l.Requests):
		if have > 0 {
			now = max(now, hits[have-1])
		}
		m.hits = slices.Concat(hits, slices.Repeat([]int64{now}, int(min(n, 2*int64(l.Requests)-have))))
	}
}

// bucket gets a millionth of its limit at each tick, of which a period has a million. Ticks are counted from
// when the bucket was last full or its limit 0; what is missing from it is exact.
type bucket struct {
	missing *big.Rat
	full    int64 // when it was last full, or its limit 0
	ticks   int64 // those since then that were seen
	tick    int64
}

func newBucket(period int64) *bucket {
	return &bucket{missing: new(big.Rat), tick: period / 1e6}
}

// brought is the bucket as it is at now.
func (m *bucket) brought(l limiter.Limit, now int64) bucket {
	b := *m
	seen := m.full + m.ticks*m.tick
	if l.Requests == 0 { // nothing is got back for this time, under a later limit either
		b.full, b.ticks = max(now, seen), 0
	} else if m.missing.Sign() > 0 && now > seen {
		b.ticks = (now - m.full) / m.tick
		b.missing = new(big.Rat).Sub(m.missing, big.NewRat((b.ticks-m.ticks)*int64(l.Requests), 1e6))
	}
	if b.missing.Sign() <= 0 {
		b = bucket{missing: new(big.Rat), full: max(now, seen), tick: m.tick}
	}
	return b
}

func size(l limiter.Limit) *big.Rat {
	if l.Requests == 0 {
		return new(big.Rat)
	}
	return new(big.Rat).SetInt64(int64(l.Burst))
}

func (m *bucket) room(l limiter.Limit, now int64) *big.Rat {
	return new(big.Rat).Sub(size(l), m.brought(l, now).missing)
}

func (m *bucket) change(l limiter.Limit, now, n int64) {
	b := m.brought(l, now)
	most := new(big.Rat).Add(size(l), size(l))
	after := new(big.Rat).Add(b.missing, new(big.Rat).SetInt64(n))
	switch {
	case n > 0 && after.Cmp(most) > 0 && b.missing.Cmp(most) > 0:
		return
	case n > 0 && after.Cmp(most) > 0:
		after = most
	}
	if after.Sign() < 0 {
		after = new(big.Rat)
	}
	if after.Cmp(b.missing) == 0 {
		return
	}
	b.missing = after
	if after.Sign() == 0 {
		b = bucket{missing: after, full: max(now, b.full+b.ticks*b.tick), tick: b.tick}
	}
	*m = b
}

func floor(r *big.Rat) *big.Int {
	// Div rounds towards negative infinity where the divisor is positive, as denominators are.
	return new(big.Int).Div(r.Num(), r.Denom())
}

func ceil(r *big.Rat) *big.Int {
	down := floor(new(big.Rat).Neg(r))
	return down.Neg(down)
}

func modelOf(l limiter.Limit) model {
	period := l.Period.Microseconds()
	switch l.Algorithm {
	case limiter.FixedWindow:
		return &windows{period: period}
	case limiter.SlidingWindow:
		return &windows{period: period, share: roundedShare}
	case limiter.SlidingLog:
		return &log{period: period}
	case limiter.TokenBucket, limiter.LeakyBucket:
		return newBucket(period)
	}
	panic("no model of " + l.Algorithm.String())
}

// kept is a counter as a store keeps it: a row that changes only when something is charged.
type kept struct{ limiter.Row }

func (k *kept) decide(h limiter.Hit, now int64) limiter.Decision {
	row := k.Row
	b := &limiter.Batch{Hits: []limiter.Hit{h}, Decisions: make([]limiter.Decision, 1)}
	limiter.Decide(b, []*limiter.Row{&row}, now)
	if b.Decisions[0].Charged {
		k.Row = row
	}
	return b.Decisions[0]
}

// would is what decide would say, without keeping anything.
func (k kept) would(h limiter.Hit, now int64) limiter.Decision { return k.decide(h, now) }

// step is a hit at an instant on a counter that was decided, and what came of it.
type step struct {
	limit    limiter.Limit
	hit      limiter.Hit
	now      int64
	counter  kept // after the hit
	decision limiter.Decision
}

// fits tells whether the limit will ever admit the hit. A bucket that gets nothing never changes.
func (s *step) fits() bool {
	if s.limit.Algorithm.HasBurst() && s.limit.Requests == 0 {
		return false
	}
	return new(big.Rat).SetInt64(need(s.hit)).Cmp(largest(s.limit)) <= 0
}

func need(h limiter.Hit) int64 {
	if h.Cost == 0 && !h.PassFull {
		return 1
	}
	return h.Cost
}

// largest is the largest cost that a limit admits.
func largest(l limiter.Limit) *big.Rat {
	if l.Algorithm.HasBurst() {
		return size(l)
	}
	return new(big.Rat).SetInt64(int64(l.Requests))
}

// periods have each its own way of being divided: into a million parts, and into milliseconds.
var periods = []time.Duration{
	time.Second, 7 * time.Second, time.Minute, time.Hour, 24 * time.Hour, 365 * 24 * time.Hour, limiter.MaxPeriod,
}

// traffic plays random hits on one counter, and shows every step. The clock steps back now and then, and the
// limit changes.
func traffic(t *rapid.T, period time.Duration, algorithm string, show func(*step)) {
	s := &step{
		limit: drawLimit(t, algorithm, period),
		now:   time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC).UnixMicro(),
	}
	us := period.Microseconds()
	pauses := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 5000), rapid.Int64Range(0, us/4),
		rapid.Int64Range(0, 5*us/2), rapid.Int64Range(-us/2, 0), rapid.Int64Range(-5000, 0))
	for range rapid.IntRange(1, 30).Draw(t, "hits") {
		if rapid.IntRange(0, 4).Draw(t, "edit") == 0 {
			s.limit = drawLimit(t, algorithm, period)
		}
		s.now = max(s.now+pauses.Draw(t, "pause"), 1)
		limit := s.limit
		s.hit = drawHit(t, &limit)
		s.decision = s.counter.decide(s.hit, s.now)
		show(s)
	}
}

func drawHit(t *rapid.T, l *limiter.Limit) limiter.Hit {
	return limiter.Hit{
		Limit: l,
		Cost: rapid.OneOf(rapid.Int64Range(0, 5), rapid.Int64Range(-5, 0), rapid.Int64Range(-limiter.MaxCost, limiter.MaxCost),
			rapid.Int64Range(0, int64(l.Requests))).Draw(t, "cost"),
		Charge:   rapid.SampledFrom([]limiter.Charge{limiter.Together, limiter.ChargeDenied}).Draw(t, "charge"),
		PassFull: rapid.Bool().Draw(t, "pass full"),
	}
}

func drawLimit(t *rapid.T, algorithm string, period time.Duration) limiter.Limit {
	numbers := rapid.OneOf(rapid.Uint32Range(0, 20), rapid.Uint32(), rapid.Just(uint32(1<<32-1)))
	a, err := limiter.ParseAlgorithm(algorithm)
	if err != nil {
		t.Fatal(err)
	}
	return rapid.Custom(func(t *rapid.T) limiter.Limit {
		l := limiter.Limit{Algorithm: a, Requests: numbers.Draw(t, "requests"), Period: period}
		if a == limiter.SlidingLog {
			l.Requests %= limiter.MaxLog + 1
		}
		if l.Algorithm.HasBurst() {
			l.Burst = numbers.Draw(t, "burst")
		}
		return l
	}).Filter(func(l limiter.Limit) bool { return l.Validate() == nil }).Draw(t, "limit")
}

// forEachAlgorithm checks a property of random traffic under every algorithm.
func forEachAlgorithm(t *testing.T, check func(t *rapid.T, period time.Duration, algorithm string)) {
	t.Helper()
	for _, name := range limiter.AlgorithmNames() {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { check(t, rapid.SampledFrom(periods).Draw(t, "period"), name) })
		})
	}
}

// TestEveryDecisionIsThatOfASlowModel compares verdicts and room without any tolerance.
func TestEveryDecisionIsThatOfASlowModel(t *testing.T) {
	forEachAlgorithm(t, func(t *rapid.T, period time.Duration, algorithm string) {
		var m model
		traffic(t, period, algorithm, func(s *step) {
			if m == nil {
				m = modelOf(s.limit)
			}
			before := floor(m.room(s.limit, s.now))
			allowed := s.hit.Cost < 0 || big.NewInt(need(s.hit)).Cmp(before) <= 0
			if allowed || s.hit.Charge == limiter.ChargeDenied {
				m.change(s.limit, s.now, s.hit.Cost)
			}
			if s.decision.Allowed != allowed {
				t.Fatalf("at %d %+v under %+v is allowed: %t; the model has room for %s",
					s.now, s.hit, s.limit, s.decision.Allowed, before)
			}
			after := floor(m.room(s.limit, s.now))
			room := s.counter.would(limiter.Hit{Limit: &s.limit}, s.now).Room
			if after.Cmp(big.NewInt(room)) != 0 {
				t.Fatalf("after %+v under %+v at %d there is room for %d; the model has room for %s",
					s.hit, s.limit, s.now, room, after)
			}
		})
	})
}

// longestWait is the longest wait that is told. Only a bucket in debt from a larger limit waits longer.
const longestWait = 2 * limiter.MaxPeriod

func TestARetryIsDeniedUntilItsTimeAndNotThen(t *testing.T) {
	forEachAlgorithm(t, func(t *rapid.T, period time.Duration, algorithm string) {
		traffic(t, period, algorithm, func(s *step) { s.retries(t) })
	})
}

// retries checks what a denied hit is told. One that never fits is to ask again at the reset, or some time if the
// counter is as new already.
func (s *step) retries(t *rapid.T) {
	wait := s.decision.RetryAfter
	if s.decision.Allowed || wait <= 0 {
		if !s.decision.Allowed || wait != 0 {
			t.Fatalf("allowed %t, and to be tried again in %s", s.decision.Allowed, wait)
		}
		return
	}
	again := s.now + wait.Microseconds()
	if s.counter.would(s.hit, again-1).Allowed {
		t.Fatalf("at %d %+v under %+v is told to wait %s, and would pass a microsecond earlier", s.now, s.hit, s.limit, wait)
	}
	good := s.counter.would(s.hit, again).Allowed
	if !s.fits() {
		good = wait == s.decision.ResetAfter || s.decision.ResetAfter == 0
	}
	if !good && wait < longestWait-s.limit.Period {
		t.Fatalf("at %d %+v under %+v is told to wait %s, in vain", s.now, s.hit, s.limit, wait)
	}
}

func TestAResetIsWhenTheWindowEndsOrTheCounterIsAsNew(t *testing.T) {
	forEachAlgorithm(t, func(t *rapid.T, period time.Duration, algorithm string) {
		m := &windows{period: period.Microseconds()}
		traffic(t, period, algorithm, func(s *step) {
			if s.limit.Algorithm != limiter.FixedWindow && s.limit.Algorithm != limiter.SlidingWindow {
				s.resets(t)
				return
			}
			if s.decision.Charged && s.hit.Cost > 0 {
				m.change(s.limit, s.now, 1)
			}
			if want := m.window(s.now) + m.period - s.now; s.decision.ResetAfter.Microseconds() != want {
				t.Fatalf("at %d a reset is in %s, and the window ends in %d µs", s.now, s.decision.ResetAfter, want)
			}
		})
	})
}

// resets is for algorithms without windows.
func (s *step) resets(t *rapid.T) {
	wait := s.decision.ResetAfter
	if wait > longestWait-s.limit.Period || s.limit.Algorithm.HasBurst() && s.limit.Requests == 0 {
		return
	}
	if at := s.now + wait.Microseconds(); !s.isNew(at) || wait > 0 && s.isNew(at-1) {
		t.Fatalf("after %+v under %+v at %d a reset is in %s; as new then: %t, a microsecond earlier: %t",
			s.hit, s.limit, s.now, wait, s.isNew(at), s.isNew(at-1))
	}
}

// isNew tells whether the counter, at now, is as good as none.
func (s *step) isNew(now int64) bool {
	return slices.Equal(s.probe(s.counter, now), s.probe(kept{}, now))
}

// probe takes one hit and then all that the limit admits. What is said to the second tells a counter that is as
// new from one that is not.
func (s *step) probe(counter kept, now int64) []limiter.Decision {
	all := largest(s.limit).Num().Int64()
	return []limiter.Decision{
		counter.decide(limiter.Hit{Limit: &s.limit, Cost: 1, Charge: limiter.ChargeDenied}, now),
		counter.decide(limiter.Hit{Limit: &s.limit, Cost: all}, now),
	}
}

// TestAnExpiredCounterDecidesAsNone: a bucket that gets no tokens, or not within the longest wait, is given up
// while it still counts.
func TestAnExpiredCounterDecidesAsNone(t *testing.T) {
	forEachAlgorithm(t, func(t *rapid.T, period time.Duration, algorithm string) {
		traffic(t, period, algorithm, func(s *step) {
			givenUp := s.limit.Algorithm.HasBurst() &&
				(s.limit.Requests == 0 || s.decision.ResetAfter > longestWait-s.limit.Period)
			if !s.decision.Charged || givenUp {
				return
			}
			now := limiter.Expires(&s.limit, &s.counter.Row, s.now)
			old, none := s.counter, kept{}
			for range rapid.IntRange(1, 3).Draw(t, "later hits") {
				now += rapid.Int64Range(0, period.Microseconds()).Draw(t, "later")
				h := drawHit(t, &s.limit)
				if got, want := old.decide(h, now), none.decide(h, now); got != want {
					t.Fatalf("%+v under %+v at %d:\nexpired %+v\n   none %+v", h, s.limit, now, got, want)
				}
			}
		})
	})
}
