package rls

import (
	"math"

	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
)

// override puts the limit that a request brings along in the place of the rule's number, unit and
// multiplier; the rule keeps its name, role and policies. A limit that can't be used, such as one without a
// unit, is ignored. A descriptor without entries has no limit, whatever it brings. What an operator has put in the rule's
// place stays there.
func (c *call) override(d *descriptor, o *sentLimit) {
	compat := c.service.options.Compat
	if len(d.entries) == 0 && !compat || c.domain == nil && compat || d.rule != nil && d.rule.Override != "" {
		return
	}
	rule := d.rule
	if compat {
		rule = nil
	}
	l, ok := c.broughtAlong(rule, o)
	if !ok {
		c.service.events.BadOverride(c.label())
		return
	}
	d.rule = rule
	d.overridden = true
	d.limits = []descriptors.Limit{l}
}

// broughtAlong is the limit of o. ok is false if it can't be used.
func (c *call) broughtAlong(rule *descriptors.Rule, o *sentLimit) (l descriptors.Limit, ok bool) {
	l.Algorithm = c.service.options.Defaults.Algorithm
	if rule != nil {
		l.Path = rule.Path
		if len(rule.Limits) > 0 {
			l = rule.Limits[0]
		}
	}
	l.Requests = o.requests
	if !l.OwnBurst && l.Algorithm.HasBurst() {
		l.Burst = l.Requests
	}
	l.Unit = descriptors.Unit(min(uint32(o.unit), math.MaxUint8))
	l.Multiplier = 1
	if o.hasMultiplier {
		l.Multiplier = o.multiplier
	}
	if c.service.options.ReplacedNames {
		l.NameAsReplaced()
	}
	_, named := typev3.RateLimitUnit_name[o.unit]
	l.Period, ok = l.Unit.Period(l.Multiplier)
	return l, ok && named && l.Multiplier != 0 && l.Limit.Validate() == nil
}
