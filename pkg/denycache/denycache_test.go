package denycache_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
	"github.com/envoy-rls/envoy-rls/pkg/denycache"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
	"github.com/envoy-rls/envoy-rls/pkg/memstore"
	"github.com/envoy-rls/envoy-rls/pkg/redisstore"
	"github.com/envoy-rls/envoy-rls/pkg/storetest"
)

func TestVerdictsAndCountsAreThoseOfTheStoreBehind(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		storetest.RunWithoutClock(t, func(*testing.T, *storetest.Clock) limiter.Store {
			return denycache.New(memstore.New(memstore.Options{}), denycache.Options{})
		})
	})
	t.Run("redis", func(t *testing.T) {
		r := proctest.StartRedis(t)
		storetest.RunWithoutClock(t, func(t *testing.T, _ *storetest.Clock) limiter.Store {
			s, err := redisstore.Open(redisstore.Options{Address: r.URL(), Prefix: t.Name(), Timeout: 5 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			return denycache.New(s, denycache.Options{})
		})
	})
}

// TestDenialsThatAreTooOldChangeNothing has a clock by which each is.
func TestDenialsThatAreTooOldChangeNothing(t *testing.T) {
	storetest.Run(t, func(_ *testing.T, c *storetest.Clock) limiter.Store {
		behind := memstore.Options{}
		if c != nil {
			behind.Now = c.Now
		}
		var reads atomic.Int64
		return denycache.New(memstore.New(behind), denycache.Options{
			MaxAge: time.Nanosecond, Now: func() time.Time { return time.Unix(0, reads.Add(1)) },
		})
	})
}

// pair is a deny cache, the memory that it asks, and the clock of both.
type pair struct {
	*testing.T
	clock  storetest.Clock
	behind *memstore.Store
	cache  *denycache.Store
}

// began is an edge of days.
var began = time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)

func newPair(t *testing.T, o denycache.Options) *pair {
	p := &pair{T: t}
	p.clock.Set(began)
	p.behind = memstore.New(memstore.Options{Now: p.clock.Now})
	o.Now = p.clock.Now
	p.cache = denycache.New(p.behind, o)
	return p
}

func batchOf(hits ...limiter.Hit) *limiter.Batch {
	return &limiter.Batch{Hits: hits, Decisions: make([]limiter.Decision, len(hits))}
}

func (p *pair) decide(hits ...limiter.Hit) *limiter.Batch {
	p.Helper()
	b := batchOf(hits...)
	if err := p.cache.Decide(context.Background(), b); err != nil {
		p.Fatal(err)
	}
	return b
}

// remembers fails unless the cache answers for h.
func (p *pair) remembers(h limiter.Hit) {
	p.Helper()
	before := p.cache.Answers().Whole
	if p.decide(h).Allowed || p.cache.Answers().Whole != before+1 {
		p.Errorf("%+v is not denied from memory", h)
	}
}

var twoPerDay = &limiter.Limit{Requests: 2, Period: 24 * time.Hour}

func hit(key string, cost int64) limiter.Hit {
	return limiter.Hit{Key: key, Limit: twoPerDay, Cost: cost, Charge: limiter.Together}
}

func TestADenialIsRememberedAndCountsDown(t *testing.T) {
	p := newPair(t, denycache.Options{})
	p.decide(hit("a", 2))
	first := p.decide(hit("a", 1)).Decisions[0]
	p.clock.Advance(300 * time.Millisecond)
	p.remembers(hit("a", 1))
	want := first
	want.Remembered = true
	want.At += 300_000
	want.ResetAfter -= 300 * time.Millisecond
	want.RetryAfter -= 300 * time.Millisecond
	if got := p.decide(hit("a", 1)).Decisions[0]; got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if n := p.decide(hit("b", 1)).Decisions[0]; !n.Charged {
		t.Errorf("another counter is %+v", n)
	}
}

func TestADenialIsBelievedForASecond(t *testing.T) {
	p := newPair(t, denycache.Options{})
	p.decide(hit("a", 3))
	p.clock.Advance(time.Second - time.Microsecond)
	p.remembers(hit("a", 3))
	p.clock.Advance(time.Microsecond)
	before := p.cache.Answers()
	p.decide(hit("a", 3))
	if p.cache.Answers() != before {
		t.Error("it is believed for longer")
	}
}

func TestASmallerCostIsAskedFor(t *testing.T) {
	bucket := &limiter.Limit{Algorithm: limiter.TokenBucket, Requests: 10, Burst: 10, Period: time.Hour}
	for _, l := range []*limiter.Limit{twoPerDay, bucket} {
		p := newPair(t, denycache.Options{})
		p.decide(limiter.Hit{Key: "a", Limit: l, Cost: 20, Charge: limiter.Together})
		if !p.decide(limiter.Hit{Key: "a", Limit: l, Cost: 2, Charge: limiter.Together}).Allowed {
			t.Errorf("under %+v what fits is denied, since more did not", l)
		}
	}
}

// TestAFullWindowIsFullForLessThanWasDenied is of a window that is full whatever the cost.
func TestAFullWindowIsFullForLessThanWasDenied(t *testing.T) {
	p := newPair(t, denycache.Options{})
	p.decide(hit("a", 2))
	p.decide(hit("a", 5))
	p.remembers(hit("a", 1))
	p.remembers(limiter.Hit{Key: "a", Limit: twoPerDay})
	if look := (limiter.Hit{Key: "a", Limit: twoPerDay, PassFull: true}); !p.decide(look).Allowed {
		t.Error("a look that passes at the limit is denied")
	}
}

func TestADenialOfACounterThatComesTwiceIsNotRemembered(t *testing.T) {
	p := newPair(t, denycache.Options{})
	first, second := hit("a", 2), hit("a", 1)
	second.Group = 1
	if p.decide(first, second).Allowed {
		t.Fatal("three of two are admitted")
	}
	if !p.decide(hit("a", 2)).Allowed {
		t.Error("what was not taken is not there")
	}
}

// TestAShadowAloneIsAnsweredForToo: all there is to say of such a request is known.
func TestAShadowAloneIsAnsweredForToo(t *testing.T) {
	p := newPair(t, denycache.Options{})
	shadow := hit("full", 3)
	shadow.Role = limiter.Shadow
	p.decide(shadow)
	b := p.decide(shadow)
	if !b.Allowed || b.Decisions[0].Allowed || p.cache.Answers().Whole != 1 {
		t.Errorf("admitted %t by %+v; from memory: %+v", b.Allowed, b.Decisions[0], p.cache.Answers())
	}
}

// TestABucketLosesNoTimeToAHitThatStandsForAnother has two hits on one bucket, of which one is known to be denied.
func TestABucketLosesNoTimeToAHitThatStandsForAnother(t *testing.T) {
	p := newPair(t, denycache.Options{Uncounted: true, MaxAge: time.Hour})
	bucket := &limiter.Limit{Algorithm: limiter.TokenBucket, Requests: 3600, Burst: 10, Period: time.Hour}
	of := func(cost int64) limiter.Hit {
		return limiter.Hit{Key: "a", Limit: bucket, Cost: cost, Group: uint16(cost), Charge: limiter.Together}
	}
	p.decide(of(10))
	p.clock.Advance(time.Microsecond)
	p.decide(of(8))
	p.clock.Advance(6 * time.Second) // a little less than which is six tokens
	if b := p.decide(of(8), of(4)); b.Allowed || !b.Decisions[1].Allowed || b.Decisions[1].Room != 5 {
		t.Errorf("of a bucket that has got five tokens, four are %+v", b.Decisions[1])
	}
	if !p.decide(of(5)).Allowed {
		t.Error("five tokens are not there")
	}
}

// failing is a store that can be out of reach.
type failing struct {
	limiter.Store
	err error
}

func (s *failing) Decide(ctx context.Context, b *limiter.Batch) error {
	if s.err != nil {
		return s.err
	}
	return s.Store.Decide(ctx, b)
}

// TestWhatTheStoreFailsToDecideIsUndecided: of hits that the cache knows, and asks for all the same, nothing stays.
func TestWhatTheStoreFailsToDecideIsUndecided(t *testing.T) {
	shadow, other := hit("full", 1), hit("other", 1)
	shadow.Role, other.Group = limiter.Shadow, 1
	for _, c := range []struct {
		uncounted bool
		hits      []limiter.Hit
		want      []limiter.State
	}{
		{false, []limiter.Hit{other}, []limiter.State{limiter.Undecided}},
		{false, []limiter.Hit{shadow, other}, []limiter.State{limiter.Undecided, limiter.Undecided}},
		{true, []limiter.Hit{shadow, other}, []limiter.State{limiter.Decided, limiter.Undecided}},
	} {
		behind := &failing{Store: memstore.New(memstore.Options{})}
		cache := denycache.New(behind, denycache.Options{Uncounted: c.uncounted})
		if err := cache.Decide(context.Background(), batchOf(hit("full", 3))); err != nil {
			t.Fatal(err)
		}
		behind.err = context.DeadlineExceeded
		b := batchOf(c.hits...)
		for i := range b.Hits {
			b.Hits[i].Cost = 3
		}
		err := cache.Decide(context.Background(), b)
		if !errors.Is(err, behind.err) {
			t.Errorf("the error is %v", err)
		}
		for i, d := range b.Decisions {
			if d.State != c.want[i] || d.Allowed {
				t.Errorf("uncounted %t: hit %d of %d is %+v", c.uncounted, i, len(b.Hits), d)
			}
		}
	}
}

// TestARequestIsAskedForUnlessWhatIsKnownDeniesItForNothing has a counter that is known to be exhausted beside one
// that isn't.
func TestARequestIsAskedForUnlessWhatIsKnownDeniesItForNothing(t *testing.T) {
	with := func(change func(h *limiter.Hit)) limiter.Hit {
		h := hit("full", 1)
		change(&h)
		return h
	}
	other := func(change func(h *limiter.Hit)) limiter.Hit {
		h := hit("other", 1)
		h.Group = 1
		change(&h)
		return h
	}
	same := func(*limiter.Hit) {}
	shadow := func(h *limiter.Hit) { h.Role = limiter.Shadow }
	quota := func(h *limiter.Hit) { h.Role = limiter.Quota }
	for name, c := range map[string]struct {
		full, other limiter.Hit
		want        bool // from memory
	}{
		"another":                    {with(same), other(same), true},
		"of one descriptor":          {with(same), other(func(h *limiter.Hit) { h.Group = 0 }), true},
		"another that is a shadow":   {with(same), other(shadow), true},
		"another that is a quota":    {with(same), other(quota), true},
		"another that is looked at":  {with(same), other(func(h *limiter.Hit) { h.Cost, h.Charge = 0, 0 }), true},
		"a shadow":                   {with(shadow), other(same), false},
		"one quota of two":           {with(quota), other(quota), false},
		"a quota beside none":        {with(quota), other(same), true},
		"another that gives back":    {with(same), other(func(h *limiter.Hit) { h.Cost = -1 }), false},
		"another charged alone":      {with(same), other(func(h *limiter.Hit) { h.Charge = 0 }), false},
		"another charged in any way": {with(same), other(func(h *limiter.Hit) { h.Charge = limiter.ChargeDenied }), false},
		"charged when denied":        {with(func(h *limiter.Hit) { h.Charge |= limiter.ChargeDenied }), other(same), false},
		"late":                       {with(func(h *limiter.Hit) { h.At = began.UnixMicro() }), other(same), false},
	} {
		p := newPair(t, denycache.Options{})
		p.decide(hit("full", 3))
		p.decide(hit("full", 2))
		p.decide(hit("full", 1))
		b := p.decide(c.full, c.other)
		if got := p.cache.Answers().Whole == 1; got != c.want {
			t.Errorf("%s: from memory: %t, want %t", name, got, c.want)
		}
		want := limiter.Decision{State: limiter.Unasked, Allowed: true}
		if c.want && (b.Allowed || b.Decisions[0].State != limiter.Decided || b.Decisions[1] != want) {
			t.Errorf("%s: admitted %t by %+v", name, b.Allowed, b.Decisions)
		}
	}
}
