package rls

import (
	"context"
	"errors"
	"slices"
	"time"
	"unsafe"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// call is one request on its way: read, matched, decided, and answered. It is pooled.
type call struct {
	service *Service
	request request
	began   time.Time
	rules   *descriptors.Ruleset
	domain  *descriptors.Domain // nil: no rules name it
	looks   *descriptors.Look   // not nil: nothing may change

	descriptors []descriptor
	names       []byte // that the hits' keys alias, and hashes of values
	batch       limiter.Batch
	exempt      bool                 // nothing is asked
	replaced    []string             // names of limits that are not asked
	hitLimits   []*descriptors.Limit // by hit of the batch
	degraded    uint8                // the policies that answered for hits, by 1 << policy
	valuePath   descriptors.MetricPath
	overGRPC    bool
	response    response

	storeFailure string // why the store failed, in a word
}

// descriptor is one of a request's descriptors and what it matched.
type descriptor struct {
	rule       *descriptors.Rule // nil: none
	entries    []descriptors.Entry
	limits     []descriptors.Limit // empty: nothing to count
	role       limiter.Role
	overridden bool // limits are the request's own
	overflows  bool // its values are too many for counters of their own
	cost       int64
	first, end int // its hits in the batch
}

func (s *Service) newCall() *call {
	c, _ := s.calls.Get().(*call)
	c.service = s
	return c
}

// maxKept is the longest request whose call is pooled: a few large ones must not hold memory for ever.
const maxKept = 16 << 10

// release gives c back, with its buffers and without what they refer to. A hit's key that aliases names is
// not looked at again.
func (c *call) release() {
	pool := &c.service.calls
	if len(c.request.wire) > maxKept {
		return
	}
	c.request.reset()
	clear(c.descriptors)
	clear(c.replaced)
	clear(c.batch.Hits)
	clear(c.hitLimits)
	*c = call{
		request:     c.request,
		descriptors: c.descriptors[:0],
		replaced:    c.replaced[:0],
		names:       c.names[:0],
		hitLimits:   c.hitLimits[:0],
		batch:       limiter.Batch{Hits: c.batch.Hits[:0], Decisions: c.batch.Decisions[:0]},
		response:    c.response[:0],
	}
	pool.Put(c)
}

// run decides the request by the rules and writes the response. The error is a gRPC status.
func (c *call) run(ctx context.Context, rules *descriptors.Ruleset) error {
	if err := c.service.check(&c.request, rules); err != nil {
		return err
	}
	c.rules, c.domain = rules, rules.Domain(c.request.domain)
	c.batch.Flow = c.request.domain
	if err := c.decide(ctx); err != nil {
		return err
	}
	c.answer()
	if c.request.explained {
		c.explain(ctx)
	}
	return nil
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
		return c.service.tooMany()
	}
	c.batch.Decisions = slices.Grow(c.batch.Decisions, n)[:n]
	clear(c.batch.Decisions)
	err := c.service.store.Decide(ctx, &c.batch)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil: // the caller has left: nobody hears an answer
		c.tellFailed()
		return status.FromContextError(ctx.Err()).Err()
	}
	reason := failureReason(err)
	c.storeFailure = reason
	c.service.events.StoreFailed(err, reason)
	err = c.degrade(reason)
	if err != nil {
		c.tellFailed()
	}
	return err
}

// match finds the rule and limits of each descriptor.
func (c *call) match() {
	for i := range c.request.descriptors {
		c.descriptors = append(c.descriptors, c.matched(&c.request.descriptors[i]))
	}
}

func (c *call) matched(sent *sentDescriptor) descriptor {
	m := descriptor{entries: c.request.entries[sent.first:sent.end], cost: c.request.cost(sent)}
	if c.domain != nil {
		c.names = c.domain.AppendPrepared(c.names, m.entries)
		m.rule = c.domain.Match(m.entries)
	}
	if m.rule != nil {
		m.rule = c.domain.Overridden(m.rule, m.entries)
		m.limits = m.rule.Limits
		c.exempt = c.exempt || m.rule.Exempt
	}
	if sent.limited {
		c.override(&m, &sent.limit)
	}
	m.role = c.role(m.rule)
	if m.rule == nil && !m.overridden {
		c.service.events.Unmatched(Unmatched{c.label(), c.request.domain, m.entries, c.began})
		if len(m.entries) == 0 {
			c.service.events.Empty(c.label())
		}
	}
	return m
}

// cost is what a descriptor costs: its own hits_addend if it has one, where 0 looks, else the request's,
// where 0 counts as 1. What no limit can admit is cut to limiter.MaxCost.
func (r *request) cost(d *sentDescriptor) int64 {
	n := uint64(max(r.hitsAddend, 1))
	if d.ownHits {
		n = d.hits
	}
	hits := int64(min(n, limiter.MaxCost))
	if d.negative {
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
		values := c.values(d)
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
			c.batch.Hits[len(c.batch.Hits)-1].Key = c.name(d, values, limit)
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
		Limit:    &l.Limit,
		Cost:     d.cost,
		Group:    group,
		Role:     d.role,
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

// values appends to c.names what the names of d's counters have in common, and returns where that is. Values that
// are too many for their rule share a counter.
func (c *call) values(d *descriptor) (values span) {
	if len(d.limits) == 0 {
		return span{}
	}
	counter := c.counter(d)
	values.first = len(c.names)
	c.names = counter.AppendValues(c.names)
	if d.rule != nil && c.overflows(d.rule, c.names[values.first:]) {
		d.overflows, counter.Overflow = true, true
		c.names = counter.AppendValues(c.names[:values.first])
		c.service.events.Overflow(d.rule.Domain, d.rule.Path)
	}
	values.end = len(c.names)
	return values
}

func (c *call) overflows(r *descriptors.Rule, values []byte) bool {
	if c.looks != nil {
		return c.looks.Overflows(r, values, c.began)
	}
	return r.Overflows(values, c.began)
}

func (c *call) counter(d *descriptor) descriptors.Counter {
	return descriptors.Counter{Domain: c.request.domain, Entries: d.entries, Rule: d.rule, Overflow: d.overflows}
}

// span is a part of call.names.
type span struct{ first, end int }

// role is that of the limits of a rule, or without one of those that the request brings along.
func (c *call) role(rule *descriptors.Rule) limiter.Role {
	role := limiter.Enforced
	if rule != nil {
		role = rule.Role
	}
	if role == limiter.Enforced && c.service.options.Quota {
		role = limiter.Quota
	}
	return role
}

// name is the name of d's counter under limit l. It aliases c.names: where that moves as it grows, earlier names
// keep the old place.
func (c *call) name(d *descriptor, values span, l *descriptors.Limit) string {
	if l.Algorithm == limiter.NamedWindow {
		return c.replacedName(d, l)
	}
	if values.end != len(c.names) { // another limit's name stands behind the values
		first := len(c.names)
		c.names = append(c.names, c.names[values.first:values.end]...)
		values.first = first
	}
	c.names = descriptors.AppendLimit(c.names, &l.Limit)
	return unsafe.String(&c.names[values.first], len(c.names)-values.first)
}

// replacedName is name by this process's clock, in the format of the service that this one replaces.
func (c *call) replacedName(d *descriptor, l *descriptors.Limit) string {
	first := len(c.names)
	c.names = c.counter(d).AppendReplacedName(c.names, l.Period, c.began)
	return unsafe.String(&c.names[first], len(c.names)-first)
}

// degrade lets the failure policies answer for what the store couldn't decide, where it was not decided locally. A
// denial is an answer whatever else failed; otherwise, if a policy wants the caller to decide, the call fails.
func (c *call) degrade(reason string) error {
	fails := false
	for i := range c.batch.Hits {
		h, d := &c.batch.Hits[i], &c.batch.Decisions[i]
		policy := h.OnFailure
		switch d.State {
		case limiter.Locally:
			policy = limiter.FailLocal
		case limiter.Undecided:
			if policy == limiter.FailLocal { // there is nobody to decide
				policy = limiter.FailError
			}
			d.Allowed = policy != limiter.FailDeny
			fails = fails || policy == limiter.FailError && h.Role != limiter.Shadow
		case limiter.Decided, limiter.Unasked:
			continue
		}
		c.degraded |= 1 << policy
		c.service.events.Degraded(c.label(), policy, reason)
	}
	c.batch.Allowed = c.batch.Verdict()
	if fails && c.batch.Allowed && !c.service.options.Shadow {
		return status.Error(codes.Unavailable, "the rate limit store is not available")
	}
	return nil
}

// failureReason is why a store failed, in a word, for stores that tell.
func failureReason(err error) string {
	var f interface{ FailureReason() string }
	if errors.As(err, &f) {
		return f.FailureReason()
	}
	return "other"
}
