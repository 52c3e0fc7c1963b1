package denycache

import (
	"math"
	"strings"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// learn remembers what was denied in a batch that was decided after began, and forgets what no longer holds.
func (s *Store) learn(b *limiter.Batch, began int64) {
	upset := false
	for i := range b.Hits {
		h, d := &b.Hits[i], &b.Decisions[i]
		upset = upset || upsets(h, d)
		if s.worthKnowing(h, d) && comesOnce(b, i) {
			s.denials.put(s.denialOf(h, d, began))
		}
	}
	if upset {
		s.forget(b)
	}
}

// worthKnowing tells whether the denial of h holds for the time that it is told to wait for, and can be an answer.
func (s *Store) worthKnowing(h *limiter.Hit, d *limiter.Decision) bool {
	if d.State != limiter.Decided || d.Allowed || d.Room >= h.Need() {
		return false
	}
	return s.uncounted || h.Cost == 0 || h.Charge == limiter.Together
}

// comesOnce tells whether no other hit of b is on the counter of hit i. If one is, i may have been denied only since
// the other would take what it then did not.
func comesOnce(b *limiter.Batch, i int) bool {
	for j := range b.Hits {
		if j != i && b.Hits[j].Key == b.Hits[i].Key {
			return false
		}
	}
	return true
}

// denialOf is what d says of h. Room grows with time only, and is too small for h until its wait is over; in a fixed
// window it doesn't grow, so that whatever is more than the room is denied.
func (s *Store) denialOf(h *limiter.Hit, d *limiter.Decision, began int64) *denial {
	need := h.Need()
	if a := h.Limit.Algorithm; a == limiter.FixedWindow || a == limiter.NamedWindow {
		need = max(d.Room+1, 0)
	}
	return &denial{
		key:   strings.Clone(h.Key),
		limit: *h.Limit,
		need:  need,
		began: began,
		until: began + int64(min(d.RetryAfter, s.maxAge)),
		was:   *d,
	}
}

// upsets tells whether h may have let a counter admit sooner than was said of it: by a give-back or, since a bucket
// fills at the rate of the limit that it is charged under, by a charge under another limit.
func upsets(h *limiter.Hit, d *limiter.Decision) bool {
	mayBeCharged := d.Charged || d.State == limiter.Undecided
	return h.Cost < 0 || h.Cost > 0 && mayBeCharged && h.Limit.Algorithm.HasBurst()
}

// forget forgets what hits of b, which has been decided, upset.
func (s *Store) forget(b *limiter.Batch) {
	now := s.clock()
	for i := range b.Hits {
		h, d := &b.Hits[i], &b.Decisions[i]
		if !upsets(h, d) {
			continue
		}
		spared := h.Limit
		if h.Cost < 0 || !comesOnce(b, i) { // then it may have filled under the limit of another hit
			spared = nil
		}
		s.denials.forget(h.Key, spared, now)
	}
}

// denial is a counter that is exhausted. It never changes.
type denial struct {
	key   string
	limit limiter.Limit
	// need is what is denied, it and all that is more.
	need int64
	// began is from when the denial is known to hold, and until when it does, by Store.clock.
	began, until int64
	was          limiter.Decision
}

// denies tells whether e says that h is denied at now.
func (e *denial) denies(h *limiter.Hit, now int64) bool {
	return now < e.until && h.Need() >= e.need && *h.Limit == e.limit && h.Key == e.key
}

// decision is what was said, counted down to now.
func (e *denial) decision(now int64) limiter.Decision {
	passed := time.Duration(now - e.began).Truncate(time.Microsecond)
	d := e.was
	d.Charged, d.Remembered = false, true
	d.ResetAfter = max(d.ResetAfter-passed, 0)
	d.RetryAfter = max(d.RetryAfter-passed, time.Microsecond)
	d.At += passed.Microseconds()
	return d
}

// never is before all instants.
const never = math.MinInt64
