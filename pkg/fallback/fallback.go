// Package fallback is a limiter.Store around one that can fail, such as Redis. Hits whose policy is
// limiter.FailLocal, and which the other could not decide, are decided in this process by its share of their
// limits; what that admits is given to the other once it can be asked again.
package fallback

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/limiter"
	"github.com/envoy-rls/envoy-rls/pkg/memstore"
)

// Options are a Store's settings. The zero value is for a single replica.
type Options struct {
	// Replicas is how many replicas share the limits; nil is 1. It is asked for every decision, by many goroutines.
	Replicas func() int
	// Share is what a replica grants.
	Share Share
	// MemoryLimit bounds what is decided locally, as memstore.Options has it.
	MemoryLimit int
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	// Spread is over how long debts are given back, at most; 0 is a second.
	Spread time.Duration
	// GaveBack is told how many hits were given back, and how many may be lost by an error; it may be nil. Those that
	// were certainly not counted are still owed.
	GaveBack func(hits int64, err error)
}

// Store is a limiter.Store. Any number of goroutines may use it.
type Store struct {
	inner   limiter.Store
	options Options
	memory  *memory
	local   atomic.Pointer[outage]
	ahead   atomic.Int64 // the inner store's clock before this one's, in µs
	owing   atomic.Bool  // something may be owed
	giving  atomic.Bool  // it is being given back
}

// outage is the time between two times that debts were given back, and what was decided locally in it.
type outage struct {
	number uint64
	store  *memstore.Store
}

// New returns a Store around inner.
func New(inner limiter.Store, o Options) *Store {
	if o.Replicas == nil {
		o.Replicas = func() int { return 1 }
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Spread == 0 {
		o.Spread = time.Second
	}
	s := &Store{inner: inner, options: o, memory: newMemory()}
	s.local.Store(s.newOutage(1))
	return s
}

func (s *Store) newOutage(number uint64) *outage {
	return &outage{number, memstore.New(memstore.Options{Now: s.now, MemoryLimit: s.options.MemoryLimit})}
}

// now is the time by the inner store's clock, as far as is known.
func (s *Store) now() time.Time {
	return s.options.Now().Add(time.Duration(s.ahead.Load()) * time.Microsecond)
}

// Decide implements limiter.Store. Its error is the inner store's; the decisions of hits that were decided in spite
// of it have State Locally, and the verdict counts them.
func (s *Store) Decide(ctx context.Context, b *limiter.Batch) error {
	err := s.inner.Decide(ctx, b)
	if err == nil {
		s.heard(b)
		return nil
	}
	if ctx.Err() == nil {
		s.decideLocally(b)
	}
	return err
}

// heard notes what the inner store told.
func (s *Store) heard(b *limiter.Batch) {
	at := int64(0)
	for i := range b.Hits {
		h, d := &b.Hits[i], &b.Decisions[i]
		if h.OnFailure != limiter.FailLocal || d.State != limiter.Decided {
			continue
		}
		at = d.At
		// Most counters are far from their limits, and for them a share of the room is as good as one of the limit.
		if 2*d.Room < whole(h.Limit) {
			s.memory.heard(h, d)
		}
	}
	if at != 0 {
		s.setClock(at)
	}
	s.Recovered()
}

// ClockOffset is by how much the inner store's clock is ahead of this one, as far as is known: by a call's time or so.
func (s *Store) ClockOffset() time.Duration { return time.Duration(s.ahead.Load()) * time.Microsecond }

// setClock notes what time it is by the inner store, unless that is as good as known: most calls are late by less.
func (s *Store) setClock(at int64) {
	const near = 20_000
	ahead := at - s.options.Now().UnixMicro()
	if off := ahead - s.ahead.Load(); off < -near || off > near {
		s.ahead.Store(ahead)
	}
}

// decideLocally decides the hits of b that are undecided and want it.
func (s *Store) decideLocally(b *limiter.Batch) {
	part := limiter.Batch{Flow: b.Flow}
	var places []int
	out := s.local.Load()
	for i := range b.Hits {
		if b.Decisions[i].State != limiter.Undecided || b.Hits[i].OnFailure != limiter.FailLocal {
			continue
		}
		h := b.Hits[i]
		s.begin(out, &h)
		h.Limit = s.options.Share.of(h.Limit, s.options.Replicas())
		part.Hits = append(part.Hits, h)
		places = append(places, i)
	}
	if len(places) == 0 {
		return
	}
	part.Decisions = make([]limiter.Decision, len(part.Hits))
	_ = out.store.Decide(context.Background(), &part) // it never fails
	for n, i := range places {
		b.Decisions[i] = part.Decisions[n]
		b.Decisions[i].State = limiter.Locally
		s.owe(&b.Hits[i], &part.Decisions[n])
	}
	b.Allowed = b.Verdict()
}

// begin has the first local decision of a counter in an outage start from this replica's share of the room that the
// inner store last told of.
func (s *Store) begin(out *outage, h *limiter.Hit) {
	taken := int64(0)
	replicas := s.options.Replicas()
	s.memory.with(h, func(c *counter) {
		if c.outage == out.number {
			return
		}
		c.outage = out.number
		if c.at == 0 {
			return
		}
		row := limiter.Seen(h.Limit, c.room, c.at)
		room := limiter.Room(h.Limit, &row, s.now().UnixMicro())
		taken = s.options.Share.Of(whole(h.Limit), replicas) - s.options.Share.Of(room, replicas)
	})
	if taken <= 0 {
		return
	}
	_ = out.store.Decide(context.Background(), &limiter.Batch{ // it never fails
		Hits: []limiter.Hit{{
			Key: h.Key, Limit: s.options.Share.of(h.Limit, replicas), Cost: taken, Charge: limiter.ChargeDenied,
		}},
		Decisions: make([]limiter.Decision, 1),
	})
}

// whole is the room of a counter that was never hit.
func whole(l *limiter.Limit) int64 {
	if l.Algorithm.HasBurst() && l.Requests > 0 {
		return int64(l.Burst)
	}
	return int64(l.Requests)
}

// owe notes what a local decision charged. Of windows, only what is owed in the last one is worth giving back.
func (s *Store) owe(h *limiter.Hit, d *limiter.Decision) {
	if !d.Charged {
		return
	}
	s.memory.with(h, func(c *counter) {
		if period := h.Limit.Period.Microseconds(); !h.Limit.Algorithm.HasBurst() && c.owedAt/period != d.At/period {
			c.owed = 0
		}
		c.owed, c.owedAt = c.owed+h.Cost, d.At
	})
	s.owing.Store(true)
}

// Recovered says that the inner store can be asked again, so that what is owed is given back soon. Decisions find
// out by themselves; it is for when there are none.
func (s *Store) Recovered() {
	if s.owing.Load() && s.giving.CompareAndSwap(false, true) {
		go s.giveBack()
	}
}

// perCall is how many debts are given back at once.
const perCall = 64

// giveBack gives the inner store what it is owed, at most once, the newest first. The next local decisions begin
// from what it tells then.
func (s *Store) giveBack() {
	defer s.giving.Store(false)
	time.Sleep(rand.N(s.options.Spread/2 + 1)) // replicas don't come all at once
	s.owing.Store(false)
	s.local.Store(s.newOutage(s.local.Load().number + 1))
	debts := s.memory.settle()
	slices.SortFunc(debts, func(a, b debt) int { return cmp.Compare(b.owedAt, a.owedAt) })
	calls := len(debts)/perCall + 1
	for list := range slices.Chunk(debts, perCall) {
		s.repay(list)
		time.Sleep(s.options.Spread / 2 / time.Duration(calls))
	}
}

// repay gives back some debts, as hits that count whatever the verdict, in the windows in which they were admitted. They
// are owed again if it is certain that they were not counted.
func (s *Store) repay(debts []debt) {
	b := &limiter.Batch{Flow: "", Decisions: make([]limiter.Decision, len(debts))}
	for i := range debts {
		d := &debts[i]
		b.Hits = append(b.Hits, limiter.Hit{
			Key: d.key, Partition: d.partition, Limit: &d.limit, Cost: min(d.owed, limiter.MaxCost), At: d.owedAt,
			Group: uint16(i), Role: limiter.Shadow, Charge: limiter.ChargeDenied,
		})
	}
	err := s.inner.Decide(context.Background(), b)
	var given, lost int64
	for i := range debts {
		d := &debts[i]
		switch {
		case err == nil || b.Decisions[i].State == limiter.Decided:
			given += d.owed
		case uncounted(err):
			s.memory.with(&b.Hits[i], func(c *counter) { c.owed, c.owedAt = c.owed+d.owed, d.owedAt })
			s.owing.Store(true)
		default:
			lost += d.owed
		}
	}
	if s.options.GaveBack != nil {
		s.options.GaveBack(given, nil)
		s.options.GaveBack(lost, err)
	}
}

// uncounted tells whether err, or each of those that it joins, is limiter.ErrNotAsked.
func uncounted(err error) bool {
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		return errors.Is(err, limiter.ErrNotAsked)
	}
	return !slices.ContainsFunc(joined.Unwrap(), func(e error) bool { return !uncounted(e) })
}
