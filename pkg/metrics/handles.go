package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

// handles are the counters that requests meet under the rules in force, found without their labels being hashed
// one by one. It is immutable.
type handles struct {
	requests  map[request]prometheus.Counter
	decisions map[decision]*decisionCounters
	limits    map[*limiter.Limit]series // by their places in the rules
}

type request struct{ domain, code string }

type decision struct {
	domain, path string
	result       rls.Result
}

// The values of the label code.
const (
	codeOK        = "ok"
	codeOverLimit = "over_limit"
	codeError     = "error"
)

// resultRest is the part of a refused cost that would have fitted.
const resultRest = "refused_within_limit"

// decisionCounters count the decisions of one limit that had one result.
type decisionCounters struct {
	decisions, hits, rest, near prometheus.Counter
}

// handlesOf makes the counters of all limits, at 0 if they are new.
func (m *Metrics) handlesOf(rules *descriptors.Ruleset) *handles {
	h := &handles{map[request]prometheus.Counter{}, map[decision]*decisionCounters{}, map[*limiter.Limit]series{}}
	for d := range rules.Domains {
		for _, code := range []string{codeOK, codeOverLimit, codeError} {
			h.requests[request{d.Name, code}] = m.requests.WithLabelValues(d.Name, code)
		}
		for _, r := range d.Rules() {
			m.addHandles(h, r)
		}
	}
	return h
}

func (m *Metrics) addHandles(h *handles, r *descriptors.Rule) {
	for i := range r.Limits {
		refused := rls.ResultOverLimit
		if r.Limits[i].Shadow || r.Role == limiter.Shadow {
			refused = rls.ResultShadowOverLimit
		}
		path := r.Limits[i].Path
		h.limits[&r.Limits[i].Limit] = series{r.Domain, path}
		for _, result := range []rls.Result{rls.ResultOK, rls.ResultNearLimit, refused} {
			h.decisions[decision{r.Domain, path, result}] = m.decision(r.Domain, path, result)
		}
	}
}

// decision finds the counters of a limit's result.
func (m *Metrics) decision(domain, path string, result rls.Result) *decisionCounters {
	return &decisionCounters{
		decisions: m.decisions.WithLabelValues(domain, path, string(result)),
		hits:      m.hits.WithLabelValues(domain, path, string(result)),
		rest:      m.hits.WithLabelValues(domain, path, resultRest),
		near:      m.near.WithLabelValues(domain, path),
	}
}

func (c *decisionCounters) count(d *rls.Decided) {
	c.decisions.Inc()
	if d.Near > 0 {
		c.near.Add(float64(d.Near))
	}
	told := d.Cost
	if d.Over > 0 && d.Over < d.Cost {
		told = d.Over
		c.rest.Add(float64(d.Cost - d.Over))
	}
	if told > 0 {
		c.hits.Add(float64(told))
	}
}
