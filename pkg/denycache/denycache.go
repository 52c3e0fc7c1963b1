// Package denycache is a limiter.Store in front of another one: a counter that is known to be exhausted is answered
// for without asking, until it could admit again. It is for stores that are far away.
package denycache

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// What Options that leave something out mean.
const (
	DefaultSize   = 8 << 20
	DefaultMaxAge = time.Second
)

// MinSize is the least that a Store takes.
const MinSize = 512 << 10

// Options are a Store's settings. The zero value is a good choice.
type Options struct {
	// Now is a clock that never steps back; nil is time.Now, whose monotonic part doesn't. It must be safe for
	// concurrent use.
	Now func() time.Time
	// Size is how many bytes the Store may take, about; 0 is DefaultSize, and what is less than MinSize is MinSize.
	// Beyond it a denial takes the place of another one.
	Size int
	// MaxAge is for how long a denial is believed at most, and so by how much a Store may be late in hearing that
	// something was given back, reset or charged under a faster limit elsewhere; 0 is DefaultMaxAge. Of what is
	// given back through the Store itself it knows at once.
	MaxAge time.Duration
	// Uncounted answers for every hit that is known to be denied, whatever its Charge, and asks for the others of
	// its request: denied hits then go uncounted. Without it, a request is asked for as a whole, unless what is
	// known decides it and asking would change no counter.
	Uncounted bool
}

// Answers are how many requests were answered from memory.
type Answers struct {
	// Whole ones the other store never heard of, Partial ones it was asked for a part of.
	Whole, Partial int64
}

// Store is a limiter.Store. Any number of goroutines may use it.
type Store struct {
	inner     limiter.Store
	now       func() time.Time
	base      time.Time
	maxAge    time.Duration
	uncounted bool
	denials   table

	_       [64]byte // what is written all the time, apart from what is only read
	whole   atomic.Int64
	partial atomic.Int64
}

// New returns a Store that knows nothing yet and asks inner.
func New(inner limiter.Store, o Options) *Store {
	s := &Store{inner: inner, now: o.Now, maxAge: o.MaxAge, uncounted: o.Uncounted}
	if s.maxAge <= 0 {
		s.maxAge = DefaultMaxAge
	}
	if o.Size == 0 {
		o.Size = DefaultSize
	}
	s.base = time.Now()
	if s.now != nil {
		s.base = s.now()
	}
	s.denials.init(max(o.Size, MinSize))
	return s
}

// Answers is what was answered from memory so far.
func (s *Store) Answers() Answers { return Answers{s.whole.Load(), s.partial.Load()} }

// Len is how many denials are kept, among them such as don't hold any more.
func (s *Store) Len() int { return s.denials.len() }

// clock is in ns since the Store was made. Denials are kept by it, so that the other store's clock may be any.
func (s *Store) clock() int64 {
	if s.now == nil {
		return int64(time.Since(s.base))
	}
	return int64(s.now().Sub(s.base))
}

// Decide implements limiter.Store. The decisions of a request that is answered from memory are of two kinds: hits that
// are known to be denied are Decided and Remembered, with the room that there was, and waits that are exact for the cost
// that was denied first; the others are Unasked.
func (s *Store) Decide(ctx context.Context, b *limiter.Batch) error {
	began := s.clock()
	known := 0
	if s.denials.holds(began) && (s.uncounted || changesNothing(b)) {
		known = s.recall(b, began)
	}
	switch {
	case known == 0:
	case known == len(b.Hits) || !s.uncounted && !b.Verdict():
		s.whole.Add(1)
		b.Allowed = b.Verdict()
		return nil
	case s.uncounted:
		return s.askForTheRest(ctx, b, began)
	default:
		clear(b.Decisions)
	}
	err := s.inner.Decide(ctx, b)
	s.learn(b, began)
	return err
}

// changesNothing tells whether no counter changes if b is denied, or each hit of it is.
func changesNothing(b *limiter.Batch) bool {
	for i := range b.Hits {
		h := &b.Hits[i]
		if h.Cost < 0 || h.Cost > 0 && h.Charge != limiter.Together {
			return false
		}
	}
	return true
}

// recall fills in the decisions of hits that are known to be denied, and returns how many. If there are any, the
// others are Unasked, so that b's verdict is denied only if it would be whatever the store said of them.
func (s *Store) recall(b *limiter.Batch, now int64) int {
	known := 0
	for i := range b.Hits {
		h, d := &b.Hits[i], &b.Decisions[i]
		*d = limiter.Decision{State: limiter.Unasked, Allowed: true}
		if h.Cost < 0 || h.At != 0 {
			continue
		}
		if e := s.denials.find(h, now); e != nil && s.holdsWithin(b, i) {
			*d = e.decision(now)
			known++
		}
	}
	if known == 0 {
		clear(b.Decisions)
	}
	return known
}

// holdsWithin tells whether what is known of hit i holds beside the other hits of b. A bucket fills at the rate of
// the limit that it is asked under, so that none of them may be on it under another one, such as that of
// askForTheRest.
func (s *Store) holdsWithin(b *limiter.Batch, i int) bool {
	own := &b.Hits[i]
	if !own.Limit.Algorithm.HasBurst() {
		return true
	}
	for j := range b.Hits {
		other := &b.Hits[j]
		if j != i && other.Key == own.Key && (s.uncounted || *other.Limit != *own.Limit) {
			return false
		}
	}
	return true
}

// askForTheRest asks for the hits that are Unasked. In place of the known ones stand looks under a limit of 0: they
// are denied, too, so that policies see the whole request, and never charged.
func (s *Store) askForTheRest(ctx context.Context, b *limiter.Batch, began int64) error {
	s.partial.Add(1)
	rest := &limiter.Batch{Flow: b.Flow, Hits: make([]limiter.Hit, len(b.Hits)), Decisions: make([]limiter.Decision, len(b.Hits))}
	copy(rest.Hits, b.Hits)
	for i := range rest.Hits {
		if h := &rest.Hits[i]; b.Decisions[i].State == limiter.Decided {
			h.Cost, h.PassFull = 0, false
			h.Limit = &limiter.Limit{Algorithm: h.Limit.Algorithm, Period: h.Limit.Period}
		}
	}
	err := s.inner.Decide(ctx, rest)
	s.learn(rest, began)
	for i := range b.Decisions {
		if b.Decisions[i].State == limiter.Unasked {
			b.Decisions[i] = rest.Decisions[i]
		}
	}
	b.Allowed = rest.Allowed
	return err
}
