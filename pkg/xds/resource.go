package xds

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	rlsconf "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
)

// The document that a resource becomes: a rule file, in JSON, which is YAML.
type (
	document struct {
		Domain      string       `json:"domain"`
		Descriptors []descriptor `json:"descriptors,omitempty"`
	}
	descriptor struct {
		Key            string         `json:"key"`
		Value          string         `json:"value,omitempty"`
		RateLimit      *rateLimit     `json:"rate_limit,omitempty"`
		ShadowMode     bool           `json:"shadow_mode,omitempty"`
		QuotaMode      bool           `json:"quota_mode,omitempty"`
		DetailedMetric bool           `json:"detailed_metric,omitempty"`
		Metadata       map[string]any `json:"metadata,omitempty"`
		Descriptors    []descriptor   `json:"descriptors,omitempty"`
	}
	rateLimit struct {
		Unit            string     `json:"unit,omitempty"`
		RequestsPerUnit *uint32    `json:"requests_per_unit,omitempty"`
		Unlimited       bool       `json:"unlimited,omitempty"`
		Name            string     `json:"name,omitempty"`
		Replaces        []replaced `json:"replaces,omitempty"`
	}
	replaced struct {
		Name string `json:"name"`
	}
)

// ruleFile is a resource as a rule file.
func ruleFile(c *rlsconf.RateLimitConfig) (descriptors.File, error) {
	f := descriptors.File{Name: shown(c.GetName()), Generated: true}
	var err error
	f.Data, err = json.Marshal(document{c.GetDomain(), descriptorsOf(c.GetDescriptors())})
	if err != nil {
		return f, fmt.Errorf("can't be written as JSON: %w", err)
	}
	return f, nil
}

// shown is how problems name a resource.
func shown(name string) string {
	if quoted := strconv.Quote(name); name == "" || quoted != `"`+name+`"` {
		name = quoted
	}
	return "resource " + name
}

func descriptorsOf(list []*rlsconf.RateLimitDescriptor) []descriptor {
	all := make([]descriptor, len(list))
	for i, d := range list {
		all[i] = descriptor{
			Key: d.GetKey(), Value: d.GetValue(), RateLimit: rateLimitOf(d.GetRateLimit()), ShadowMode: d.GetShadowMode(),
			QuotaMode: d.GetQuotaMode(), DetailedMetric: d.GetDetailedMetric(), Descriptors: descriptorsOf(d.GetDescriptors()),
		}
		if m := d.GetMetadata(); m != nil {
			all[i].Metadata = m.AsMap()
		}
	}
	return all
}

// rateLimitOf leaves out what the resource doesn't say, so that it is missed as in a file.
func rateLimitOf(p *rlsconf.RateLimitPolicy) *rateLimit {
	if p == nil {
		return nil
	}
	l := &rateLimit{Unlimited: p.GetUnlimited(), Name: p.GetName()}
	if p.GetUnit() != rlsconf.RateLimitUnit_UNKNOWN {
		l.Unit = strings.ToLower(p.GetUnit().String())
	}
	if n := p.GetRequestsPerUnit(); n > 0 || !l.Unlimited { // 0 can't be told from nothing, and refuses everything
		l.RequestsPerUnit = &n
	}
	for _, r := range p.GetReplaces() {
		l.Replaces = append(l.Replaces, replaced{r.GetName()})
	}
	return l
}
