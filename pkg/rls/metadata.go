package rls

import (
	"strings"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// metadata writes the answer's dynamic metadata: by DynamicMetadata, the request and what its rules say of
// themselves; by that or VerdictMetadata, which limits refused or would have; and under degraded, the failure policies
// that answered, such as local.
func (c *call) metadata() {
	m := map[string]any{}
	o := &c.service.options
	if o.DynamicMetadata {
		m = c.requestMetadata()
	}
	if o.VerdictMetadata || o.DynamicMetadata && !o.Compat {
		c.addVerdict(m)
	}
	if c.degraded != 0 {
		var names []string
		for _, p := range c.policies() {
			names = append(names, p.String())
		}
		m["degraded"] = strings.Join(names, ",")
	}
	if len(m) == 0 {
		return
	}
	s, err := structpb.NewStruct(m)
	if err != nil {
		return // a text that is not UTF-8, which no request and no rule file has
	}
	start := c.response.open(answerMetadata)
	if b, err := (proto.MarshalOptions{}).MarshalAppend(c.response, s); err == nil {
		c.response = b
	}
	c.response.close(start)
}

// addVerdict adds what VerdictMetadata says.
func (c *call) addVerdict(m map[string]any) {
	if c.refused() {
		if d, shown := c.strictest(); d != nil {
			m["denied_by"] = ruleName(d, shown)
		}
	}
	var would []any
	for _, name := range c.wouldRefuse() {
		would = append(would, name)
	}
	if would != nil {
		m["would_deny"] = would
	}
}

// policies are the failure policies that answered for hits.
func (c *call) policies() (list []limiter.FailurePolicy) {
	for p := limiter.FailError; p <= limiter.FailLocal; p++ {
		if c.degraded&(1<<p) != 0 {
			list = append(list, p)
		}
	}
	return list
}

// requestMetadata is, by the field names of the service that this one replaces, the request as it came, and the
// metadata of the rules whose descriptors passed.
func (c *call) requestMetadata() map[string]any {
	sent := request{wire: c.request.wire} // read anew: c's own values have been prepared
	_ = sent.unmarshal()                  // it was read before
	list := make([]any, len(sent.descriptors))
	for i := range sent.descriptors {
		list[i] = sent.descriptorMetadata(&sent.descriptors[i])
	}
	m := map[string]any{"domain": c.request.domain, "descriptors": list}
	if n := c.request.hitsAddend; n != 0 {
		m["hitsAddend"] = float64(n)
	}
	if rules := c.ruleMetadata(); len(rules) > 0 {
		m["metadata"] = rules
	}
	return m
}

func (r *request) descriptorMetadata(d *sentDescriptor) map[string]any {
	entries := make([]any, 0, d.end-d.first)
	for _, e := range r.entries[d.first:d.end] {
		entries = append(entries, e.Key+"="+e.Value)
	}
	m := map[string]any{"entries": entries}
	if d.ownHits {
		m["hitsAddend"] = float64(d.hits)
	}
	if d.limited {
		m["limit"] = strings.TrimSpace(d.limit.message().String())
	}
	return m
}

// message is l in the generated code's type.
func (l *sentLimit) message() *common.RateLimitDescriptor_RateLimitOverride {
	m := &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: l.requests, Unit: typev3.RateLimitUnit(l.unit)}
	if l.hasMultiplier {
		m.UnitMultiplier = wrapperspb.UInt32(l.multiplier)
	}
	return m
}

// ruleMetadata merges the metadata of rules, in order: the first to name a key wins, and mappings are merged
// key by key. Rules' own mappings are copied, never written.
func (c *call) ruleMetadata() map[string]any {
	merged := map[string]any{}
	for i := range c.descriptors {
		d := &c.descriptors[i]
		if d.rule != nil && (c.passes(d) || d.rule.Role == limiter.Shadow) {
			merge(merged, d.rule.Metadata)
		}
	}
	return merged
}

func merge(into, from map[string]any) {
	for k, v := range from {
		below, isMap := v.(map[string]any)
		have, taken := into[k]
		if !isMap {
			if !taken {
				into[k] = v
			}
			continue
		}
		if !taken {
			have = map[string]any{}
			into[k] = have
		}
		if haveMap, ok := have.(map[string]any); ok {
			merge(haveMap, below)
		}
	}
}
