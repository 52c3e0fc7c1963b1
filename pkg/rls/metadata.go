package rls

import (
	"strings"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// metadata is the answer's dynamic metadata, by the field names of the service that this one replaces: the
// request as it came, and the metadata of the rules whose descriptors passed.
func (c *call) metadata() *structpb.Struct {
	list := make([]any, len(c.descriptors))
	for i, d := range c.request.GetDescriptors() {
		list[i] = descriptorMetadata(d)
	}
	m := map[string]any{"domain": c.request.GetDomain(), "descriptors": list}
	if n := c.request.GetHitsAddend(); n != 0 {
		m["hitsAddend"] = float64(n)
	}
	if rules := c.ruleMetadata(); len(rules) > 0 {
		m["metadata"] = rules
	}
	s, err := structpb.NewStruct(m)
	if err != nil {
		return nil // a text that is not UTF-8, which protobuf refuses in requests
	}
	return s
}

func descriptorMetadata(d *common.RateLimitDescriptor) map[string]any {
	entries := make([]any, len(d.GetEntries()))
	for i, e := range d.GetEntries() {
		entries[i] = e.GetKey() + "=" + e.GetValue()
	}
	m := map[string]any{"entries": entries}
	if own := d.GetHitsAddend(); own != nil {
		m["hitsAddend"] = float64(own.GetValue())
	}
	if l := d.GetLimit(); l != nil {
		m["limit"] = strings.TrimSpace(l.String())
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
