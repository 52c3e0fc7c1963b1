package rls

import (
	"math"
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
	decided := c.service.events.Decision
	for i := d.first; i < d.end; i++ {
		result := ResultOK
		switch denied := !c.batch.Decisions[i].Allowed; {
		case denied && c.batch.Hits[i].Role == limiter.Shadow:
			result = ResultShadowOverLimit
		case denied:
			result = ResultOverLimit
		}
		decided(d.rule.Domain, c.hitLimits[i].Path, result, d.cost)
	}
	switch {
	case d.first < d.end:
	case d.rule.Exempt:
		decided(d.rule.Domain, d.rule.Path, ResultExempt, d.cost)
	case c.exempt:
	case len(d.limits) > 0:
		decided(d.rule.Domain, d.rule.Path, ResultReplaced, d.cost)
	default:
		decided(d.rule.Domain, d.rule.Path, ResultUnlimited, d.cost)
	}
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
