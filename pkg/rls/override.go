package rls

import (
	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// override puts the limit that a request brings along in the place of the rule's number, unit and
// multiplier; the rule keeps its name, role and policies. A limit that can't be used, such as one without a
// unit, is ignored. A descriptor without entries has no limit, whatever it brings.
func (c *call) override(d *descriptor, o *common.RateLimitDescriptor_RateLimitOverride) {
	compat := c.service.options.Compat
	if len(d.entries) == 0 && !compat || c.domain == nil && compat {
		return
	}
	l := descriptors.Limit{
		Unit:       descriptors.Unit(min(uint32(o.GetUnit()), 255)),
		Multiplier: 1,
		Limit:      limiter.Limit{Requests: o.GetRequestsPerUnit(), Algorithm: c.service.options.Defaults.Algorithm},
	}
	if o.GetUnitMultiplier() != nil {
		l.Multiplier = o.GetUnitMultiplier().GetValue()
	}
	if d.rule != nil && len(d.rule.Limits) > 0 && !compat {
		first := &d.rule.Limits[0]
		l.Name, l.Algorithm, l.Burst = first.Name, first.Algorithm, first.Burst
	}
	_, named := typev3.RateLimitUnit_name[int32(o.GetUnit())]
	period, ok := l.Unit.Period(l.Multiplier)
	l.Period = period
	if !named || !ok || l.Multiplier == 0 || l.Limit.Validate() != nil {
		c.service.events.BadOverride(c.label())
		return
	}
	if compat {
		d.rule = nil
	}
	d.overridden = true
	d.limits = []descriptors.Limit{l}
}
