package denycache_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/denycache"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
	"github.com/envoy-rls/envoy-rls/pkg/memstore"
)

func TestAGiveBackIsHonouredAtOnceUnderEveryLimit(t *testing.T) {
	for _, uncounted := range []bool{false, true} {
		p := newPair(t, denycache.Options{Uncounted: uncounted})
		one := &limiter.Limit{Requests: 1, Period: twoPerDay.Period}
		other := hit("a", 1)
		other.Limit = one
		p.decide(hit("a", 2))
		for _, h := range []limiter.Hit{hit("a", 1), other} {
			p.decide(h)
			p.remembers(h)
		}
		p.decide(hit("a", -2))
		if !p.decide(other).Allowed || !p.decide(hit("a", 1)).Allowed {
			t.Errorf("uncounted %t: what was given back is denied", uncounted)
		}
	}
}

func TestAnotherLimitIsAnotherQuestion(t *testing.T) {
	for _, uncounted := range []bool{false, true} {
		p := newPair(t, denycache.Options{Uncounted: uncounted})
		p.decide(hit("a", 2))
		p.decide(hit("a", 1))
		p.remembers(hit("a", 1))
		raised := hit("a", 1)
		raised.Limit = &limiter.Limit{Requests: 3, Period: twoPerDay.Period}
		if !p.decide(raised).Allowed {
			t.Errorf("uncounted %t: a raised limit is not honoured", uncounted)
		}
		p.remembers(hit("a", 1))
		read := hit("a", 1)
		read.Limit = &limiter.Limit{Requests: 2, Period: twoPerDay.Period}
		p.remembers(read) // rules that were read again, and say the same
	}
}

// TestAChargeUnderAFasterLimitIsHonoured: a bucket fills at the rate of the limit that it is charged under.
func TestAChargeUnderAFasterLimitIsHonoured(t *testing.T) {
	p := newPair(t, denycache.Options{MaxAge: time.Hour})
	of := func(requests uint32, cost int64) limiter.Hit {
		l := &limiter.Limit{Algorithm: limiter.TokenBucket, Requests: requests, Burst: 10, Period: time.Hour}
		return limiter.Hit{Key: "a", Limit: l, Cost: cost, Charge: limiter.Together}
	}
	p.decide(of(10, 10))
	p.clock.Advance(time.Microsecond)
	p.decide(of(10, 5))
	p.remembers(of(10, 5))
	p.clock.Advance(time.Second)
	p.decide(of(36_000, 1)) // which has got ten a second
	if !p.decide(of(10, 5)).Allowed {
		t.Error("nine tokens are there, and five are denied")
	}
}

// hooked is a store that does something between its decision and its answer, once.
type hooked struct {
	limiter.Store
	then func()
}

func (s *hooked) Decide(ctx context.Context, b *limiter.Batch) error {
	err := s.Store.Decide(ctx, b)
	if then := s.then; then != nil {
		s.then = nil
		then()
	}
	return err
}

// TestADenialFromBeforeAGiveBackIsNotRememberedAfterIt: it was on its way when what it says ceased to be true.
func TestADenialFromBeforeAGiveBackIsNotRememberedAfterIt(t *testing.T) {
	for _, pause := range []time.Duration{0, time.Millisecond} {
		p := newPair(t, denycache.Options{})
		slow := &hooked{Store: p.behind}
		p.cache = denycache.New(slow, denycache.Options{Now: p.clock.Now})
		p.decide(hit("a", 2))
		p.clock.Advance(pause)
		slow.then = func() {
			p.clock.Advance(pause)
			p.decide(hit("a", -1))
			p.clock.Advance(pause)
		}
		if p.decide(hit("a", 1)).Allowed {
			t.Fatal("a full counter admits")
		}
		if !p.decide(hit("a", 1)).Allowed {
			t.Errorf("with pauses of %s: what was given back is denied", pause)
		}
	}
}

// TestAGiveBackIsHonouredAmongManyLooks: whoever has given back finds it, while others are denied at the same time.
func TestAGiveBackIsHonouredAmongManyLooks(t *testing.T) {
	s := denycache.New(memstore.New(memstore.Options{}), denycache.Options{})
	limit := &limiter.Limit{Requests: 1, Period: limiter.MaxPeriod}
	decide := func(cost int64) bool {
		b := batchOf(limiter.Hit{Key: "a", Limit: limit, Cost: cost, Charge: limiter.Together})
		return s.Decide(context.Background(), b) == nil && b.Allowed
	}
	var done atomic.Bool
	var looks sync.WaitGroup
	for range 3 {
		looks.Go(func() {
			for !done.Load() {
				decide(0)
			}
		})
	}
	for range 3000 {
		if !decide(1) {
			t.Error("what was given back is not there")
			break
		}
		for range 2 {
			if decide(0) {
				t.Error("a full counter admits")
			}
		}
		decide(-1)
	}
	done.Store(true)
	looks.Wait()
	if s.Answers().Whole == 0 {
		t.Error("nobody was answered from memory")
	}
}

func TestAGiveBackThroughAnotherStoreIsHonouredWithinTheMaxAge(t *testing.T) {
	p := newPair(t, denycache.Options{MaxAge: 3 * time.Second})
	p.decide(hit("a", 2))
	p.decide(hit("a", 1))
	elsewhere := denycache.New(p.behind, denycache.Options{Now: p.clock.Now})
	if err := elsewhere.Decide(context.Background(), batchOf(hit("a", -1))); err != nil {
		t.Fatal(err)
	}
	p.clock.Advance(3*time.Second - time.Microsecond)
	p.remembers(hit("a", 1))
	p.clock.Advance(time.Microsecond)
	if !p.decide(hit("a", 1)).Allowed {
		t.Error("what was given back elsewhere is denied for longer than that")
	}
}

// TestNoNameIsKeptThatACallerReuses: a denial outlives its caller's buffer.
func TestNoNameIsKeptThatACallerReuses(t *testing.T) {
	p := newPair(t, denycache.Options{})
	none := &limiter.Limit{Period: time.Hour}
	for i := range 3 {
		p.decide(limiter.Hit{Key: aliased(fmt.Appendf(nil, "name%d", i)), Limit: none, Cost: 1, Charge: limiter.Together})
	}
	buffer := []byte("name0")
	p.remembers(limiter.Hit{Key: aliased(buffer), Limit: none, Cost: 1, Charge: limiter.Together})
	p.decide(limiter.Hit{Key: aliased(buffer), Limit: none, Cost: 0})
	buffer[4] = '7'
	p.remembers(limiter.Hit{Key: "name0", Limit: none, Cost: 1, Charge: limiter.Together})
	before := p.cache.Answers()
	p.decide(limiter.Hit{Key: "name7", Limit: none, Cost: 1, Charge: limiter.Together})
	if p.cache.Answers() != before {
		t.Error("a name is known that nobody was denied under")
	}
}
