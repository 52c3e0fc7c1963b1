package rls

import (
	"math"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// The numbers of the fields that answers have, by message.
const (
	answerCode, answerStatus, answerHeader, answerMetadata     protowire.Number = 1, 2, 3, 6
	statusCode, statusLimit, statusRemaining, statusReset      protowire.Number = 1, 2, 3, 4
	limitRequests, limitUnit, limitName, limitMultiplier       protowire.Number = 1, 2, 3, 4
	headerKey, headerValue, durationSeconds, wrappedMultiplier protowire.Number = 1, 2, 1, 1
)

// answer writes the decisions into the response.
func (c *call) answer() {
	c.response.varint(answerCode, code(!c.refused()))
	for i := range c.descriptors {
		c.status(i)
	}
	c.headers()
	if o := &c.service.options; o.DynamicMetadata || o.VerdictMetadata || c.degraded != 0 {
		c.metadata()
	}
}

// refused tells whether the answer is over limit.
func (c *call) refused() bool { return !c.batch.Allowed && !c.service.options.Shadow }

// rehearses tells whether clients are not to be told of limits, since none is enforced.
func (c *call) rehearses() bool { return c.service.options.Shadow && !c.service.options.Compat }

func code(ok bool) uint64 {
	if ok {
		return uint64(ratelimit.RateLimitResponse_OK)
	}
	return uint64(ratelimit.RateLimitResponse_OVER_LIMIT)
}

// status writes the answer for the descriptor of an index, and tells the events of it.
func (c *call) status(index int) {
	d := &c.descriptors[index]
	c.tell(index)
	start := c.response.open(answerStatus)
	switch shown, ok := c.shown(d); {
	case ok:
		c.limited(d, shown)
	case d.rule != nil && d.rule.Unlimited:
		c.response.varint(statusCode, code(true))
		c.response.varint(statusRemaining, math.MaxUint32)
	default:
		c.response.varint(statusCode, code(true))
	}
	c.response.close(start)
}

// limited writes the status of a descriptor that was counted. A shadow rule's status stays OK and, unless
// Compat is set, doesn't show its limit, since Envoy would tell clients of it.
func (c *call) limited(d *descriptor, shown shownLimit) {
	passes, shadow := c.passes(d), d.role == limiter.Shadow
	c.response.varint(statusCode, code(passes || shadow))
	if !shown.decision.Known() && passes || shadow && !c.service.options.Compat || c.rehearses() {
		return
	}
	c.currentLimit(shown.limit)
	c.response.varint(statusRemaining, uint64(shown.remaining()))
	if wait := shown.wait(); wait > 0 {
		start := c.response.open(statusReset)
		c.response.varint(durationSeconds, uint64(wait/time.Second))
		c.response.close(start)
	}
}

func (c *call) currentLimit(l *descriptors.Limit) {
	start := c.response.open(statusLimit)
	c.response.varint(limitRequests, uint64(l.Requests))
	c.response.varint(limitUnit, uint64(l.Unit))
	c.response.text(limitName, l.Name)
	if l.Multiplier > 1 {
		wrapped := c.response.open(limitMultiplier)
		c.response.varint(wrappedMultiplier, uint64(l.Multiplier))
		c.response.close(wrapped)
	}
	c.response.close(start)
}

// tell tells the events of the limits of the descriptor of an index.
func (c *call) tell(index int) {
	d := &c.descriptors[index]
	for i := d.first; i < d.end; i++ {
		result := c.decided(d, i)
		result.Descriptor = index
		c.service.events.Decided(result)
	}
	if d.rule == nil {
		return
	}
	whole := Decided{Domain: d.rule.Domain, Path: d.rule.Path, Descriptor: index, Cost: max(d.cost, 0)}
	switch {
	case d.first < d.end:
		return
	case d.rule.Exempt:
		whole.Result = ResultExempt
	case c.exempt:
		return
	case len(d.limits) > 0:
		whole.Result = ResultReplaced
	default:
		whole.Result = ResultUnlimited
	}
	c.service.events.Decided(whole)
}

// tellFailed tells the events of the hits of a call that the store failed.
func (c *call) tellFailed() {
	for i := range c.descriptors {
		d := &c.descriptors[i]
		for n := d.first; n < d.end; n++ {
			failed := Decided{Domain: c.label(), Result: ResultFailed, Cost: max(c.batch.Hits[n].Cost, 0)}
			failed.Path, failed.Values = c.paths(d, c.hitLimits[n])
			c.service.events.Decided(failed)
		}
	}
}

// decided is what became of hit i of d.
func (c *call) decided(d *descriptor, i int) Decided {
	h, decision := &c.batch.Hits[i], &c.batch.Decisions[i]
	result := Decided{Domain: c.label(), Result: ResultOK, Cost: max(h.Cost, 0), Remembered: decision.Remembered}
	result.Path, result.Values = c.paths(d, c.hitLimits[i])
	switch {
	case decision.Allowed:
	case h.Role == limiter.Shadow:
		result.Result = ResultShadowOverLimit
	default:
		result.Result = ResultOverLimit
	}
	switch {
	case decision.State == limiter.Unasked:
		result.Cost = 0
	case decision.State != limiter.Decided || h.Cost <= 0:
	case decision.Allowed && !decision.Charged && !c.service.options.Compat:
		result.Cost = 0 // the request was refused elsewhere, and cost nothing here
	default:
		result.Over, result.Near = c.service.parts(h, decision)
		if result.Result == ResultOK && result.Near > 0 {
			result.Result = ResultNearLimit
		}
	}
	return result
}

// paths are those of a limit of d, for metrics.
func (c *call) paths(d *descriptor, l *descriptors.Limit) (path string, values *descriptors.MetricPath) {
	switch {
	case d.rule == nil && c.service.options.Compat:
		c.valuePath = descriptors.SentPath(c.label(), d.entries)
		return c.label() + BroughtAlong, &c.valuePath
	case d.rule == nil:
		return c.label() + BroughtAlong, nil
	case d.rule.PerValue():
		c.valuePath = d.rule.ValuePath(l, d.entries)
		return l.Path, &c.valuePath
	}
	return l.Path, nil
}

// parts are how much of a hit's cost lies beyond its limit, if it was denied, and how much in the last part
// before it.
func (s *Service) parts(h *limiter.Hit, d *limiter.Decision) (over, near int64) {
	limit := int64(h.Limit.Requests)
	if h.Limit.Algorithm.HasBurst() {
		limit = int64(h.Limit.Burst)
	}
	before := limit - d.Room
	if d.Charged || d.Allowed { // what passed and was not charged is told of as if it had been, in compat mode
		before -= h.Cost
	}
	after := before + h.Cost
	edge := int64(float32(limit) * s.nearRatio())
	if !d.Allowed {
		over = min(h.Cost, after-limit)
	}
	return over, max(min(after, limit)-max(edge, before), 0)
}

func (s *Service) nearRatio() float32 {
	if s.options.NearRatio == 0 {
		return 0.8
	}
	return s.options.NearRatio
}

// counts tells whether hit i has a say in the status of its descriptor: a limit that is only tried out beside
// others has none.
func (c *call) counts(d *descriptor, i int) bool {
	return c.batch.Hits[i].Role == d.role
}

func (c *call) passes(d *descriptor) bool {
	for i := d.first; i < d.end; i++ {
		if c.counts(d, i) && !c.batch.Decisions[i].Allowed {
			return false
		}
	}
	return true
}

// shownLimit is the limit of a descriptor that its status tells of.
type shownLimit struct {
	limit    *descriptors.Limit
	decision *limiter.Decision
}

// shown is the descriptor's denying limit with the longest wait, else the one with the least room; ok is false if
// none was asked.
func (c *call) shown(d *descriptor) (best shownLimit, ok bool) {
	for i := d.first; i < d.end; i++ {
		s := shownLimit{c.hitLimits[i], &c.batch.Decisions[i]}
		if c.counts(d, i) && (!ok || s.stricter(best)) {
			best, ok = s, true
		}
	}
	return best, ok
}

// stricter orders by what a client should be told of first.
func (s shownLimit) stricter(than shownLimit) bool {
	if s.decision.Allowed != than.decision.Allowed {
		return !s.decision.Allowed
	}
	if !s.decision.Allowed {
		return s.decision.RetryAfter > than.decision.RetryAfter
	}
	return s.decision.Room < than.decision.Room
}

// remaining is how many hits are left; none to who was denied.
func (s shownLimit) remaining() uint32 {
	if !s.decision.Allowed {
		return 0
	}
	return uint32(min(max(s.decision.Room, 0), math.MaxUint32))
}

// wait is how long until a denied client may try again, or until a passing one has its whole limit again,
// in whole seconds, rounded up.
func (s shownLimit) wait() time.Duration {
	wait := s.decision.ResetAfter
	if !s.decision.Allowed {
		wait = s.decision.RetryAfter
	}
	return (wait + time.Second - 1).Truncate(time.Second)
}
