package rls

import (
	"context"
	"slices"
	"time"
	"unsafe"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// call is one request on its way: matched, then decided, then answered. It is pooled.
type call struct {
	service *Service
	began   time.Time
	request *ratelimit.RateLimitRequest
	rules   *descriptors.Ruleset
	domain  *descriptors.Domain // nil: no rules name it

	entries     []descriptors.Entry // of all descriptors
	descriptors []descriptor
	names       []byte // that the hits' keys alias
	batch       limiter.Batch
	exempt      bool                 // nothing is asked
	replaced    []string             // names of limits that are not asked
	hitLimits   []*descriptors.Limit // by hit of the batch
}

// descriptor is one of a request's descriptors and what it matched.
type descriptor struct {
	rule       *descriptors.Rule // nil: none
	entries    []descriptors.Entry
	limits     []descriptors.Limit // empty: nothing to count
	overridden bool                // limits are the request's own
	overflow   bool                // it shares the counter of values that are too many
	cost       int64
	first, end int // its hits in the batch
}

func newCall(s *Service, req *ratelimit.RateLimitRequest, rules *descriptors.Ruleset) *call {
	c, _ := s.calls.Get().(*call)
	c.began = time.Now()
	c.service, c.request, c.rules = s, req, rules
	c.domain = rules.Domain(req.GetDomain())
	c.batch.Flow = req.GetDomain()
	return c
}

// release gives c back, with its buffers and without what they refer to.
func (c *call) release() {
	pool := &c.service.calls
	clear(c.entries)
	clear(c.descriptors)
	clear(c.replaced)
	clear(c.batch.Hits)
	clear(c.hitLimits)
	*c = call{
		entries:     c.entries[:0],
		descriptors: c.descriptors[:0],
		replaced:    c.replaced[:0],
		names:       c.names[:0],
		hitLimits:   c.hitLimits[:0],
		batch:       limiter.Batch{Hits: c.batch.Hits[:0], Decisions: c.batch.Decisions[:0]},
	}
	pool.Put(c)
}

// label is the domain for metrics.
func (c *call) label() string {
	if c.domain == nil {
		return ""
	}
	return c.domain.Name
}

// decide matches the request and has the store decide it. The error is a gRPC status.
func (c *call) decide(ctx context.Context) error {
	c.match()
	c.replace()
	c.makeHits()
	n := len(c.batch.Hits)
	switch {
	case n == 0:
		c.batch.Allowed = true
		return nil
	case n > MaxHits:
		return c.service.errorf(codes.InvalidArgument, "the request comes to more than %d hits; ask in parts", MaxHits)
	}
	c.batch.Decisions = slices.Grow(c.batch.Decisions, n)[:n]
	clear(c.batch.Decisions)
	err := c.service.store.Decide(ctx, &c.batch)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil: // the caller has left: nobody hears an answer
		return status.FromContextError(ctx.Err()).Err()
	}
	c.service.events.StoreFailed(err)
	return c.degrade()
}

// match finds the rule and limits of each descriptor.
func (c *call) match() {
	list := c.request.GetDescriptors()
	total := 0
	for _, d := range list {
		total += len(d.GetEntries())
	}
	c.entries = slices.Grow(c.entries, total) // so that it stays where descriptors point to
	for _, d := range list {
		first := len(c.entries)
		for _, e := range d.GetEntries() {
			c.entries = append(c.entries, descriptors.Entry{Key: e.GetKey(), Value: e.GetValue()})
		}
		c.descriptors = append(c.descriptors, c.matched(d, c.entries[first:]))
	}
}

func (c *call) matched(d *common.RateLimitDescriptor, entries []descriptors.Entry) descriptor {
	m := descriptor{entries: entries, cost: cost(c.request, d)}
	if c.domain != nil {
		c.domain.Prepare(entries)
		m.rule = c.domain.Match(entries)
	}
	if m.rule != nil {
		m.limits = m.rule.Limits
		c.exempt = c.exempt || m.rule.Exempt
	}
	if d.GetLimit() != nil {
		c.override(&m, d.GetLimit())
	}
	if m.rule == nil && !m.overridden {
		c.service.events.Unmatched(c.label())
	}
	return m
}

// cost is what a descriptor costs: its own hits_addend if it has one, where 0 looks, else the request's,
// where 0 counts as 1. What no limit can admit is cut to limiter.MaxCost.
func cost(req *ratelimit.RateLimitRequest, d *common.RateLimitDescriptor) int64 {
	n := uint64(max(req.GetHitsAddend(), 1))
	if own := d.GetHitsAddend(); own != nil {
		n = own.GetValue()
	}
	hits := int64(min(n, limiter.MaxCost))
	if d.GetIsNegativeHits() {
		return -hits
	}
	return hits
}

// replace collects the names of limits that matched rules replace; in no order, so that a replaced rule still
// replaces. An unlimited rule can replace and can't be replaced.
func (c *call) replace() {
	for i := range c.descriptors {
		if c.descriptors[i].rule == nil {
			continue
		}
		for _, name := range c.descriptors[i].rule.Replaces {
			if !slices.Contains(c.replaced, name) {
				c.replaced = append(c.replaced, name)
			}
		}
	}
}

// makeHits makes the hits of all descriptors, and stops once they are too many. The limits of a descriptor are
// one group, but for those that are only tried out, so that these deny nothing. Only what has hits has a
// group: groups, too, are at most MaxHits.
func (c *call) makeHits() {
	if c.exempt {
		return
	}
	group := uint16(0)
	for i := range c.descriptors {
		d := &c.descriptors[i]
		c.bound(d)
		d.first = len(c.batch.Hits)
		for l := range d.limits {
			limit := &d.limits[l]
			if limit.Name != "" && slices.Contains(c.replaced, limit.Name) {
				continue
			}
			if limit.Shadow && len(c.batch.Hits) > d.first {
				group++
			}
			c.batch.Hits = append(c.batch.Hits, c.hit(d, group, limit))
			c.hitLimits = append(c.hitLimits, limit)
		}
		d.end = len(c.batch.Hits)
		if d.end > MaxHits {
			return
		}
		if d.end > d.first {
			group++
		}
	}
}

func (c *call) hit(d *descriptor, group uint16, l *descriptors.Limit) limiter.Hit {
	h := limiter.Hit{
		Key:      c.name(d, &l.Limit),
		Limit:    &l.Limit,
		Cost:     d.cost,
		Group:    group,
		Role:     d.role(),
		PassFull: c.service.options.Compat,
	}
	if l.Shadow {
		h.Role = limiter.Shadow
	}
	if c.domain != nil {
		h.Partition = c.domain.Partition(d.entries)
	}
	if d.rule != nil {
		h.Charge, h.OnFailure = d.rule.Charge, d.rule.OnFailure
		return h
	}
	defaults := &c.service.options.Defaults
	h.Charge, h.OnFailure = limiter.Together, defaults.OnStoreFailure
	if defaults.CountDenied {
		h.Charge = limiter.ChargeDenied
	}
	return h
}

func (c *call) counter(d *descriptor) descriptors.Counter {
	return descriptors.Counter{Domain: c.request.GetDomain(), Entries: d.entries, Rule: d.rule, Overflow: d.overflow}
}

// bound lets values that are too many for their rule share a counter.
func (c *call) bound(d *descriptor) {
	if d.rule == nil || !d.rule.Bounded() {
		return
	}
	first := len(c.names)
	c.names = c.counter(d).AppendValues(c.names)
	d.overflow = d.rule.Overflows(c.names[first:], c.began)
	c.names = c.names[:first]
	if d.overflow {
		c.service.events.Overflow(d.rule.Domain, d.rule.Path)
	}
}

func (d *descriptor) role() limiter.Role {
	if d.rule == nil {
		return limiter.Enforced
	}
	return d.rule.Role
}

// name is the counter's name. It aliases c.names: where that moves as it grows, earlier names keep the old
// place.
func (c *call) name(d *descriptor, l *limiter.Limit) string {
	first := len(c.names)
	c.names = c.counter(d).AppendName(c.names, l)
	return unsafe.String(&c.names[first], len(c.names)-first)
}

// degrade lets the failure policies answer for what the store couldn't decide. A denial is an answer
// whatever else failed; otherwise, if a policy wants the caller to decide, the call fails.
func (c *call) degrade() error {
	fails := false
	for i := range c.batch.Hits {
		h, d := &c.batch.Hits[i], &c.batch.Decisions[i]
		if d.State != limiter.Undecided {
			continue
		}
		c.service.events.Degraded(c.label(), h.OnFailure)
		d.Allowed = h.OnFailure != limiter.FailDeny
		fails = fails || h.OnFailure == limiter.FailError && h.Role != limiter.Shadow
	}
	c.batch.Allowed = c.batch.Verdict()
	if fails && c.batch.Allowed {
		return status.Error(codes.Unavailable, "the rate limit store is not available")
	}
	return nil
}
