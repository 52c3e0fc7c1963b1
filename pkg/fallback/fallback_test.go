package fallback_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
	"github.com/envoy-rls/envoy-rls/pkg/fallback"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
	"github.com/envoy-rls/envoy-rls/pkg/memstore"
	"github.com/envoy-rls/envoy-rls/pkg/storetest"
)

// cut is a store that can be cut off.
type cut struct {
	limiter.Store
	off   atomic.Bool
	tries atomic.Int64 // while it is off
	err   error        // of a try; nil is limiter.ErrNotAsked
}

func (c *cut) Decide(ctx context.Context, b *limiter.Batch) error {
	if c.off.Load() {
		c.tries.Add(1)
		clear(b.Decisions)
		if c.err != nil {
			return c.err
		}
		return fmt.Errorf("cut off: %w", limiter.ErrNotAsked)
	}
	return c.Store.Decide(ctx, b)
}

// fleet is some replicas over one store, at one time.
type fleet struct {
	clock    storetest.Clock
	shared   *cut
	replicas []*fallback.Store
	gaveBack atomic.Int64
	lost     atomic.Int64
}

func newFleet(n int, share fallback.Share) *fleet {
	f := &fleet{}
	f.clock.Set(time.Unix(1_800_000_030, 0)) // half a minute
	f.shared = &cut{Store: memstore.New(memstore.Options{Now: f.clock.Now})}
	for range n {
		f.replicas = append(f.replicas, fallback.New(f.shared, fallback.Options{
			Replicas: func() int { return n }, Share: share, Now: f.clock.Now, Spread: 2,
			GaveBack: func(hits int64, err error) {
				if err == nil {
					f.gaveBack.Add(hits)
				} else {
					f.lost.Add(hits)
				}
			},
		}))
	}
	return f
}

func (f *fleet) ask(t *testing.T, replica int, l *limiter.Limit, cost int64) *limiter.Batch {
	t.Helper()
	b := &limiter.Batch{
		Hits:      []limiter.Hit{{Key: "ann", Limit: l, Cost: cost, Charge: limiter.Together, OnFailure: limiter.FailLocal}},
		Decisions: make([]limiter.Decision, 1),
	}
	err := f.replicas[replica].Decide(context.Background(), b)
	if err != nil && !errors.Is(err, limiter.ErrNotAsked) {
		t.Fatal(err)
	}
	if f.shared.off.Load() && b.Decisions[0].State != limiter.Locally {
		t.Fatalf("the state is %d", b.Decisions[0].State)
	}
	return b
}

// flood asks until every replica refuses, and returns how many passed.
func (f *fleet) flood(t *testing.T, l *limiter.Limit) (passed int64) {
	t.Helper()
	for i := range f.replicas {
		for f.ask(t, i, l, 1).Allowed {
			passed++
		}
	}
	return passed
}

var algorithms = []limiter.Limit{
	{Algorithm: limiter.FixedWindow, Requests: 60, Period: time.Minute},
	{Algorithm: limiter.SlidingWindow, Requests: 60, Period: time.Minute},
	{Algorithm: limiter.SlidingLog, Requests: 60, Period: time.Minute},
	{Algorithm: limiter.TokenBucket, Requests: 60, Burst: 60, Period: time.Minute},
}

// bound is what a fleet may admit of n, by what the documents say.
func (f *fleet) bound(n int64) int64 {
	replicas := int64(len(f.replicas))
	return n + int64(2*math.Sqrt(float64(n*replicas))) + replicas
}

func TestAllReplicasAdmitNoMoreThanTheBound(t *testing.T) {
	const n, granted = 10, 40
	for _, l := range algorithms {
		f := newFleet(n, fallback.Balanced)
		for i := range granted {
			f.ask(t, i%n, &l, 1)
		}
		for i := range n { // each has heard that 20 are left
			f.ask(t, i, &l, 0)
		}
		f.shared.off.Store(true)
		if got := f.flood(t, &l); got < 20 || got > f.bound(20) {
			t.Errorf("%s: in the window of the outage %d passed, with 20 left; the bound is %d", l.Algorithm, got, f.bound(20))
		}
		f.clock.Advance(3 * time.Minute)
		if got := f.flood(t, &l); got < 60 || got > f.bound(60) {
			t.Errorf("%s: in a later window %d passed of 60; the bound is %d", l.Algorithm, got, f.bound(60))
		}
	}
}

// TestHonestClientsAreHardlyRefused has clients that keep to 80 % of their limit, spread over the replicas at random. For 2.2 % of
// them a replica gets more than its share.
func TestHonestClientsAreHardlyRefused(t *testing.T) {
	const n, clients = 10, 1000
	l := algorithms[0]
	for share, most := range map[fallback.Share]int{fallback.Balanced: clients / 40, fallback.Full: 0} {
		f := newFleet(n, share)
		f.shared.off.Store(true)
		random, refused := rand.New(rand.NewPCG(1, 2)), 0
		for range clients {
			ok := true
			for range l.Requests * 8 / 10 {
				ok = f.ask(t, random.IntN(n), &l, 1).Allowed && ok
			}
			if !ok {
				refused++
			}
			f.clock.Advance(2 * time.Minute)
		}
		if refused > most {
			t.Errorf("%s: %d of %d clients that kept to 80 %% of their limit were refused", share, refused, clients)
		}
	}
}

func TestWhatWasAdmittedIsGivenBackOnce(t *testing.T) {
	const n = 4
	for _, l := range algorithms {
		f := newFleet(n, fallback.Balanced)
		f.ask(t, 0, &l, 10)
		f.shared.off.Store(true)
		f.clock.Advance(time.Second)
		passed := int64(0)
		for i := range 3 * n {
			if f.ask(t, i%n, &l, 1).Allowed {
				passed++
			}
		}
		f.shared.off.Store(false)
		for _, r := range f.replicas {
			r.Recovered()
			r.Recovered()
		}
		proctest.Eventually(t, "debts are given back", func() bool { return f.gaveBack.Load() == passed })
		// A second has leaked a token of what was taken first.
		want, got := int64(l.Requests)-10-passed, f.ask(t, 0, &l, 0).Decisions[0].Room
		if got != want && (l.Algorithm != limiter.TokenBucket || got != want+1) {
			t.Errorf("%s: %d are left, want %d", l.Algorithm, got, want)
		}
	}
}

func TestDebtsOfAStoreThatRefusesAreGivenBackLater(t *testing.T) {
	l := algorithms[0]
	f := newFleet(1, fallback.Balanced)
	f.shared.off.Store(true)
	f.ask(t, 0, &l, 7)
	f.shared.tries.Store(0)
	f.replicas[0].Recovered()
	proctest.Eventually(t, "it is tried", func() bool { return f.shared.tries.Load() == 1 })
	f.shared.off.Store(false)
	proctest.Eventually(t, "debts are given back", func() bool {
		f.replicas[0].Recovered()
		return f.gaveBack.Load() == 7
	})
	if got := f.ask(t, 0, &l, 0).Decisions[0].Room; got != 53 {
		t.Errorf("%d are left of 60, of which 7 were admitted", got)
	}
}

func TestDebtsThatMayHaveBeenCountedAreNotGivenBackAgain(t *testing.T) {
	l := algorithms[0]
	f := newFleet(1, fallback.Balanced)
	f.shared.off.Store(true)
	f.ask(t, 0, &l, 7)
	f.shared.err = errors.Join(limiter.ErrNotAsked, context.DeadlineExceeded) // of two places, one may have counted
	f.replicas[0].Recovered()
	proctest.Eventually(t, "they are lost", func() bool { return f.lost.Load() == 7 })
	f.shared.off.Store(false)
	f.replicas[0].Recovered()
	if got := f.ask(t, 0, &l, 0).Decisions[0].Room; got != 60 || f.gaveBack.Load() > 0 {
		t.Errorf("%d are left of 60, and %d were given back", got, f.gaveBack.Load())
	}
}

func TestDebtsOfAnEndedWindowAreNotCharged(t *testing.T) {
	l := algorithms[0]
	f := newFleet(1, fallback.Balanced)
	f.shared.off.Store(true)
	f.ask(t, 0, &l, 7)
	f.clock.Advance(time.Minute)
	f.shared.off.Store(false)
	f.replicas[0].Recovered()
	proctest.Eventually(t, "debts are given back", func() bool { return f.gaveBack.Load() == 7 })
	if got := f.ask(t, 0, &l, 0).Decisions[0].Room; got != 60 {
		t.Errorf("%d are left of 60 in a new window", got)
	}
}

func TestASecondOutageBeginsFromWhatIsLeft(t *testing.T) {
	l := algorithms[0]
	f := newFleet(1, fallback.Balanced)
	f.shared.off.Store(true)
	f.ask(t, 0, &l, 50)
	f.shared.off.Store(false)
	f.replicas[0].Recovered()
	proctest.Eventually(t, "debts are given back", func() bool { return f.gaveBack.Load() == 50 })
	f.ask(t, 0, &l, 0)
	f.shared.off.Store(true)
	if got := f.flood(t, &l); got != 10 {
		t.Errorf("%d passed, want the 10 that are left", got)
	}
}

func TestOtherPoliciesAreLeftUndecided(t *testing.T) {
	f := newFleet(1, fallback.Balanced)
	f.shared.off.Store(true)
	b := &limiter.Batch{
		Hits: []limiter.Hit{
			{Key: "a", Limit: &algorithms[0], Cost: 1, OnFailure: limiter.FailAllow},
			{Key: "b", Limit: &limiter.Limit{Period: time.Second}, Cost: 1, OnFailure: limiter.FailLocal, Group: 1},
		},
		Decisions: make([]limiter.Decision, 2),
	}
	if err := f.replicas[0].Decide(context.Background(), b); !errors.Is(err, limiter.ErrNotAsked) {
		t.Errorf("the error is %v", err)
	}
	if b.Decisions[0].State != limiter.Undecided || b.Decisions[1].State != limiter.Locally || b.Decisions[1].Allowed {
		t.Errorf("the decisions are %+v", b.Decisions)
	}
}

func TestShares(t *testing.T) {
	for _, c := range []struct {
		share       fallback.Share
		n           int64
		replicas    int
		want, total int64
	}{
		{fallback.Balanced, 60, 10, 11, 110}, {fallback.Balanced, 5, 3, 5, 15}, {fallback.Balanced, 1000, 20, 65, 1300},
		{fallback.Balanced, 0, 3, 0, 0}, {fallback.Balanced, 7, 1, 7, 7}, {fallback.Balanced, 7, 0, 7, 0},
		{fallback.Strict, 60, 10, 6, 60}, {fallback.Strict, 61, 10, 7, 70}, {fallback.Full, 60, 10, 60, 600},
	} {
		if got := c.share.Of(c.n, c.replicas); got != c.want || got*int64(c.replicas) != c.total {
			t.Errorf("%s of %d for %d: %d", c.share, c.n, c.replicas, got)
		}
	}
}
