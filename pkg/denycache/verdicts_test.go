package denycache_test

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/envoy-rls/envoy-rls/pkg/denycache"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
	"github.com/envoy-rls/envoy-rls/pkg/memstore"
	"github.com/envoy-rls/envoy-rls/pkg/storetest"
)

// steady is a clock that goes on while another one steps back.
type steady struct {
	clock  storetest.Clock
	passed storetest.Clock
}

func (s *steady) advance(d time.Duration) {
	s.clock.Advance(d)
	s.passed.Advance(max(d, 0))
}

// traffic draws batches on few counters under few limits, so that many are denied, and that again.
type traffic struct {
	families [][]*limiter.Limit // each of one algorithm and period
	distinct bool               // no counter comes twice in a batch
	// dropped tells that the store drops counters that have become as good as new, some time. Whether it has shows if
	// the clock steps back then, or if a bucket that was charged under one limit is asked under another.
	dropped bool
	charges *rapid.Generator[limiter.Charge]
}

var (
	anyCharge    = rapid.Map(rapid.Uint8Range(0, 3), func(bits uint8) limiter.Charge { return limiter.Charge(bits) })
	oftenPlain   = rapid.OneOf(rapid.Just(limiter.Together), rapid.Just(limiter.Together), rapid.Just(limiter.Together), anyCharge)
	someCosts    = rapid.OneOf(rapid.Just(int64(1)), rapid.Int64Range(0, 4), rapid.Int64Range(0, 2), rapid.Int64Range(-2, 8))
	somePeriods  = []time.Duration{time.Second, 2 * time.Second, 7 * time.Second, time.Minute, time.Hour}
	somePauses   = rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 5_000), rapid.Int64Range(0, 400_000), rapid.Int64Range(0, 3_000_000), rapid.Int64Range(-400_000, 0), rapid.Int64Range(0, 7_200_000_000))
	someRequests = rapid.Uint32Range(1, 6)
)

// draw draws the limits.
func (tr *traffic) draw(t *rapid.T) {
	for range rapid.IntRange(1, 3).Draw(t, "families") {
		limits := family(t)
		if limits[0].Algorithm.HasBurst() && tr.dropped {
			limits = limits[:1]
		}
		tr.families = append(tr.families, limits)
	}
}

// family is one or two limits on the same counters.
func family(t *rapid.T) []*limiter.Limit {
	first := limiter.Limit{
		Algorithm: limiter.Algorithm(rapid.IntRange(0, int(limiter.NamedWindow)).Draw(t, "algorithm")),
		Period:    rapid.SampledFrom(somePeriods).Draw(t, "period"),
	}
	var limits []*limiter.Limit
	for range rapid.IntRange(1, 2).Draw(t, "limits") {
		l := first
		l.Requests = someRequests.Draw(t, "requests")
		if l.Algorithm.HasBurst() {
			l.Burst = someRequests.Draw(t, "burst")
		}
		limits = append(limits, &l)
	}
	if len(limits) == 1 && rapid.IntRange(0, 5).Draw(t, "none at all") == 0 {
		limits[0].Requests, limits[0].Burst = 0, 0
	}
	return limits
}

func (tr *traffic) batch(t *rapid.T, now int64) *limiter.Batch {
	b := &limiter.Batch{Flow: "traffic"}
	taken := map[string]bool{}
	for i := range rapid.IntRange(1, 4).Draw(t, "hits") {
		h := tr.hit(t, now)
		if tr.distinct && taken[h.Key] {
			continue
		}
		taken[h.Key] = true
		h.Group = uint16(i)
		if n := len(b.Hits); n > 0 && rapid.IntRange(0, 2).Draw(t, "same descriptor") == 0 {
			last := &b.Hits[n-1]
			h.Group, h.Role, h.Charge = last.Group, last.Role, last.Charge
		}
		b.Hits = append(b.Hits, h)
	}
	b.Decisions = make([]limiter.Decision, len(b.Hits))
	return b
}

func (tr *traffic) hit(t *rapid.T, now int64) limiter.Hit {
	f := rapid.IntRange(0, len(tr.families)-1).Draw(t, "family")
	h := limiter.Hit{
		Key:      tr.key(f, rapid.IntRange(0, 1).Draw(t, "counter"), now),
		Limit:    rapid.SampledFrom(tr.families[f]).Draw(t, "limit"),
		Cost:     someCosts.Draw(t, "cost"),
		Role:     limiter.Role(max(0, rapid.IntRange(-2, 2).Draw(t, "role"))),
		Charge:   tr.charges.Draw(t, "charge"),
		PassFull: rapid.Bool().Draw(t, "pass full"),
	}
	if rapid.IntRange(0, 9).Draw(t, "late") == 0 {
		h.At = now - rapid.Int64Range(0, 3_000_000).Draw(t, "at")
	}
	return h
}

// key is the name of a family's counter at now.
func (tr *traffic) key(f, counter int, now int64) string {
	l := tr.families[f][0]
	if l.Algorithm == limiter.NamedWindow {
		return fmt.Sprintf("%d:%d_%d", f, counter, now/l.Period.Microseconds())
	}
	return fmt.Sprintf("%d:%d", f, counter)
}

func (tr *traffic) pause(t *rapid.T) time.Duration {
	pause := time.Duration(somePauses.Draw(t, "pause")) * time.Microsecond
	if tr.dropped {
		return max(pause, 0)
	}
	return pause
}

// looks are at all counters under all limits.
func (tr *traffic) looks(now int64) *limiter.Batch {
	b := &limiter.Batch{}
	for f, limits := range tr.families {
		for _, l := range limits {
			for counter := range 2 {
				b.Hits = append(b.Hits, limiter.Hit{Key: tr.key(f, counter, now), Limit: l})
			}
		}
	}
	b.Decisions = make([]limiter.Decision, len(b.Hits))
	return b
}

// decideBy returns a copy of b that s has decided.
func decideBy(t *rapid.T, s limiter.Store, b *limiter.Batch) *limiter.Batch {
	c := &limiter.Batch{Flow: b.Flow, Hits: b.Hits, Decisions: make([]limiter.Decision, len(b.Hits))}
	if err := s.Decide(context.Background(), c); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestNoVerdictAndNoCounterIsOtherThanWithoutTheCache plays traffic before two stores, of which one has a cache.
func TestNoVerdictAndNoCounterIsOtherThanWithoutTheCache(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		changesNoVerdict(t, dropsCounters, func(c *storetest.Clock) limiter.Store { return memstore.New(memstore.Options{Now: c.Now}) })
	})
	t.Run("model", func(t *testing.T) {
		changesNoVerdict(t, !dropsCounters, func(c *storetest.Clock) limiter.Store { return storetest.ModelStore{Rows: storetest.Model{}, Clock: c} })
	})
}

const dropsCounters = true

func changesNoVerdict(t *testing.T, dropped bool, open func(*storetest.Clock) limiter.Store) {
	var answered, batches int64
	rapid.Check(t, func(t *rapid.T) {
		var moving steady
		moving.clock.Set(began)
		behind, alone := open(&moving.clock), open(&moving.clock)
		cache := denycache.New(behind, denycache.Options{
			Now:    moving.passed.Now,
			MaxAge: rapid.SampledFrom([]time.Duration{0, time.Hour}).Draw(t, "max age"),
		})
		tr := &traffic{charges: oftenPlain, dropped: dropped}
		tr.draw(t)
		for range rapid.IntRange(1, 60).Draw(t, "batches") {
			moving.advance(tr.pause(t))
			b := tr.batch(t, moving.clock.Micros())
			sameVerdicts(t, decideBy(t, cache, b), decideBy(t, alone, b))
			batches++
		}
		answered += cache.Answers().Whole
		looks := tr.looks(moving.clock.Micros())
		got, want := decideBy(t, behind, looks), decideBy(t, alone, looks)
		for i := range want.Decisions {
			if got.Decisions[i] != want.Decisions[i] {
				t.Errorf("%s under %+v is left\n     %+v,\nwant %+v", want.Hits[i].Key, *want.Hits[i].Limit, got.Decisions[i], want.Decisions[i])
			}
		}
	})
	t.Logf("%d of %d were answered from memory", answered, batches)
	if answered < batches/100 {
		t.Error("which is too few to show anything")
	}
}

// fits tells whether a hit's limit will ever admit it. One that doesn't is told to wait for anything.
func fits(h *limiter.Hit) bool {
	if h.Limit.Algorithm.HasBurst() {
		return h.Need() <= int64(h.Limit.Burst)
	}
	return h.Need() <= int64(h.Limit.Requests)
}

// sameVerdicts compares what a cache decided with what a store did. Nobody is told to wait longer than needed.
func sameVerdicts(t *rapid.T, got, want *limiter.Batch) {
	if got.Allowed != want.Allowed {
		t.Errorf("%+v is admitted: %t, want %t", want.Hits, got.Allowed, want.Allowed)
	}
	for i := range want.Decisions {
		g, w := &got.Decisions[i], &want.Decisions[i]
		if g.Charged != w.Charged {
			t.Errorf("%+v is charged: %t, want %t", want.Hits[i], g.Charged, w.Charged)
		}
		switch g.State {
		case limiter.Decided:
			if g.Allowed != w.Allowed || g.RetryAfter > w.RetryAfter && fits(&want.Hits[i]) {
				t.Errorf("%+v under %+v:\n got %+v\nwant %+v", want.Hits[i], *want.Hits[i].Limit, g, w)
			}
		case limiter.Unasked:
			if got.Allowed || !g.Allowed {
				t.Errorf("%+v is not asked for, and the request admitted: %t", want.Hits[i], got.Allowed)
			}
		case limiter.Undecided:
			t.Errorf("%+v is undecided", want.Hits[i])
		}
	}
}

// TestWhatGoesUncountedIsAllThatDiffers compares each batch with what the store would have said to it as it was.
func TestWhatGoesUncountedIsAllThatDiffers(t *testing.T) {
	var answered denycache.Answers
	rapid.Check(t, func(t *rapid.T) {
		var moving steady
		moving.clock.Set(began)
		behind := storetest.ModelStore{Rows: storetest.Model{}, Clock: &moving.clock}
		cache := denycache.New(behind, denycache.Options{
			Now: moving.passed.Now, MaxAge: limiter.MaxPeriod, Uncounted: true,
		})
		tr := &traffic{charges: anyCharge, distinct: true}
		tr.draw(t)
		for range rapid.IntRange(1, 60).Draw(t, "batches") {
			moving.advance(tr.pause(t))
			b := tr.batch(t, moving.clock.Micros())
			before := maps.Clone(behind.Rows)
			want := decideBy(t, storetest.ModelStore{Rows: maps.Clone(behind.Rows), Clock: &moving.clock}, b)
			got := decideBy(t, cache, b)
			if got.Allowed != want.Allowed {
				t.Errorf("%+v is admitted: %t, want %t", b.Hits, got.Allowed, want.Allowed)
			}
			for i := range b.Hits {
				h, g, w := &b.Hits[i], got.Decisions[i], want.Decisions[i]
				row, old := behind.Rows[h.Key], before[h.Key]
				switch {
				case !g.Remembered && g != w, g.Remembered && (g.Allowed || w.Allowed || g.Charged):
					t.Errorf("%+v under %+v:\n got %+v\nwant %+v", *h, *h.Limit, g, w)
				case g.Remembered && fmt.Sprint(row) != fmt.Sprint(old):
					t.Errorf("%+v is counted: %v after %v", *h, row, old)
				}
			}
		}
		answered.Whole += cache.Answers().Whole
		answered.Partial += cache.Answers().Partial
	})
	t.Logf("answered from memory: %+v", answered)
	if answered.Whole == 0 || answered.Partial == 0 {
		t.Error("which is too few to show anything")
	}
}
