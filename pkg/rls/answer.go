package rls

import (
	"math"
	"strings"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// answer turns the decisions into a response.
func (c *call) answer() *ratelimit.RateLimitResponse {
	r := &ratelimit.RateLimitResponse{
		OverallCode: code(c.batch.Allowed),
		Statuses:    make([]*ratelimit.RateLimitResponse_DescriptorStatus, len(c.descriptors)),
	}
	for i := range c.descriptors {
		r.Statuses[i] = c.status(&c.descriptors[i])
	}
	r.ResponseHeadersToAdd = c.headers()
	if c.service.options.DynamicMetadata {
		r.DynamicMetadata = c.metadata()
	}
	return r
}

func code(ok bool) ratelimit.RateLimitResponse_Code {
	if ok {
		return ratelimit.RateLimitResponse_OK
	}
	return ratelimit.RateLimitResponse_OVER_LIMIT
}

// status is the answer for one descriptor, and tells the events of it.
func (c *call) status(d *descriptor) *ratelimit.RateLimitResponse_DescriptorStatus {
	c.tell(d)
	s := &ratelimit.RateLimitResponse_DescriptorStatus{Code: ratelimit.RateLimitResponse_OK}
	switch shown := c.shown(d); {
	case shown != nil:
		c.limited(s, d, shown)
	case d.rule != nil && d.rule.Unlimited:
		s.LimitRemaining = math.MaxUint32
	}
	return s
}

// limited fills in the status of a descriptor that was counted. A shadow rule's status stays OK and, unless
// Compat is set, doesn't show its limit, since Envoy would tell clients of it.
func (c *call) limited(s *ratelimit.RateLimitResponse_DescriptorStatus, d *descriptor, shown *shownLimit) {
	passes, shadow := c.passes(d), d.role() == limiter.Shadow
	s.Code = code(passes || shadow)
	if shown.decision.State == limiter.Undecided && passes || shadow && !c.service.options.Compat {
		return
	}
	s.CurrentLimit = currentLimit(shown.limit)
	s.LimitRemaining = shown.remaining()
	if wait := shown.wait(); wait > 0 {
		s.DurationUntilReset = durationpb.New(wait)
	}
}

// tell tells the events of a descriptor's limits.
func (c *call) tell(d *descriptor) {
	if d.rule == nil {
		return
	}
	for i := d.first; i < d.end; i++ {
		c.service.events.Decided(c.decided(d, i))
	}
	whole := Decided{Domain: d.rule.Domain, Path: d.rule.Path, Cost: max(d.cost, 0)}
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

// decided is what became of hit i of d.
func (c *call) decided(d *descriptor, i int) Decided {
	h, decision := &c.batch.Hits[i], &c.batch.Decisions[i]
	result := Decided{Domain: d.rule.Domain, Path: c.hitLimits[i].Path, Result: ResultOK, Cost: max(h.Cost, 0)}
	if d.rule.PerValue() {
		result.Values = d.rule.MetricPath(d.entries) + strings.TrimPrefix(result.Path, d.rule.Path)
	}
	switch {
	case decision.Allowed:
	case h.Role == limiter.Shadow:
		result.Result = ResultShadowOverLimit
	default:
		result.Result = ResultOverLimit
	}
	switch {
	case decision.State != limiter.Decided || h.Cost <= 0:
	case decision.Allowed && !decision.Charged && !c.service.options.Compat:
		result.Cost = 0 // the request was refused elsewhere, and cost nothing here
	default:
		result.Over, result.Near = c.service.parts(h, decision)
	}
	return result
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
	return c.batch.Hits[i].Role == d.role()
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

// shown is the descriptor's denying limit with the longest wait, else the one with the least room; nil if
// none was counted.
func (c *call) shown(d *descriptor) *shownLimit {
	var best *shownLimit
	for i := d.first; i < d.end; i++ {
		s := &shownLimit{c.hitLimits[i], &c.batch.Decisions[i]}
		if c.counts(d, i) && (best == nil || s.stricter(best)) {
			best = s
		}
	}
	return best
}

// stricter orders by what a client should be told of first.
func (s *shownLimit) stricter(than *shownLimit) bool {
	if s.decision.Allowed != than.decision.Allowed {
		return !s.decision.Allowed
	}
	if !s.decision.Allowed {
		return s.decision.RetryAfter > than.decision.RetryAfter
	}
	return s.decision.Room < than.decision.Room
}

// remaining is how many hits are left; none to who was denied.
func (s *shownLimit) remaining() uint32 {
	if !s.decision.Allowed {
		return 0
	}
	return uint32(min(max(s.decision.Room, 0), math.MaxUint32))
}

// wait is how long until a denied client may try again, or until a passing one has its whole limit again,
// in whole seconds, rounded up.
func (s *shownLimit) wait() time.Duration {
	wait := s.decision.ResetAfter
	if !s.decision.Allowed {
		wait = s.decision.RetryAfter
	}
	return (wait + time.Second - 1).Truncate(time.Second)
}

func currentLimit(l *descriptors.Limit) *ratelimit.RateLimitResponse_RateLimit {
	r := &ratelimit.RateLimitResponse_RateLimit{
		Name:            l.Name,
		RequestsPerUnit: l.Requests,
		Unit:            ratelimit.RateLimitResponse_RateLimit_Unit(l.Unit),
	}
	if l.Multiplier > 1 {
		r.UnitMultiplier = wrapperspb.UInt32(l.Multiplier)
	}
	return r
}
