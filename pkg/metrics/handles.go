package metrics

import (
	"slices"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

// handles are the counters that requests meet under the rules in force, found without their labels being hashed
// one by one. It is immutable but for what is made when it is first asked for.
type handles struct {
	requests map[request]prometheus.Counter
	limits   map[series]*limitCounters
	names    map[series]oldName // of limits, and of those that requests bring along
	bounded  []*descriptors.Rule
}

type request struct{ domain, code string }

// The values of the label code.
const (
	codeOK        = "ok"
	codeOverLimit = "over_limit"
	codeError     = "error"
)

// resultRest is the part of a refused cost that would have fitted.
const resultRest = "refused_within_limit"

// limitCounters count what becomes of one limit. Those of its decisions exist from the start, the others once there
// is something to count: there can be many rules.
type limitCounters struct {
	series
	refused    rls.Result // what its refusals are called
	decisions  [3]prometheus.Counter
	hits       [3]lazyCounter
	rest       lazyCounter
	near       lazyCounter
	remembered lazyCounter
}

// lazyCounter is a counter that is made when it is first needed.
type lazyCounter struct {
	made atomic.Pointer[prometheus.Counter]
}

func (l *lazyCounter) add(n int64, v *prometheus.CounterVec, labels ...string) {
	c := l.made.Load()
	if c == nil {
		counter := v.WithLabelValues(labels...)
		c = &counter
		l.made.Store(c)
	}
	(*c).Add(float64(n))
}

// handlesOf makes the counters of all limits.
func (m *Metrics) handlesOf(rules *descriptors.Ruleset) *handles {
	h := &handles{
		requests: map[request]prometheus.Counter{}, limits: map[series]*limitCounters{},
		names: map[series]oldName{}, bounded: bounded(rules),
	}
	for d := range rules.Domains {
		own := descriptors.MetricPath{Path: d.Name + rls.BroughtAlong, Keys: [2]string{rls.BroughtAlong[1:]}}
		h.names[series{d.Name, own.Path}] = m.replaced.name(d.Name, &own)
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
		l := &limitCounters{series: series{r.Domain, r.Limits[i].Path}, refused: rls.ResultOverLimit}
		if r.Limits[i].Shadow || r.Role == limiter.Shadow {
			l.refused = rls.ResultShadowOverLimit
		}
		for n, result := range l.results() {
			l.decisions[n] = m.decisions.WithLabelValues(l.domain, l.path, string(result))
		}
		h.limits[l.series] = l
		path := r.MetricPath(&r.Limits[i])
		h.names[l.series] = m.replaced.name(r.Domain, &path)
	}
}

// results are those that it has counters for.
func (l *limitCounters) results() [3]rls.Result {
	return [...]rls.Result{rls.ResultOK, rls.ResultNearLimit, l.refused}
}

// count counts a decision, and returns false if it has no counters for its result.
func (l *limitCounters) count(m *Metrics, d *rls.Decided) bool {
	results := l.results()
	n := slices.Index(results[:], d.Result)
	if n < 0 {
		return false
	}
	l.decisions[n].Inc()
	if d.Near > 0 {
		l.near.add(d.Near, m.near, l.domain, l.path)
	}
	if d.Remembered {
		l.remembered.add(d.Cost, m.remembered, l.domain, l.path)
	}
	told, rest := parts(d)
	if rest > 0 {
		l.rest.add(rest, m.hits, l.domain, l.path, resultRest)
	}
	if told > 0 {
		l.hits[n].add(told, m.hits, l.domain, l.path, string(d.Result))
	}
	return true
}

// countSlowly counts a decision under a path that has no handles.
func (m *Metrics) countSlowly(d *rls.Decided, path string) {
	m.decisions.WithLabelValues(d.Domain, path, string(d.Result)).Inc()
	if d.Near > 0 {
		m.near.WithLabelValues(d.Domain, path).Add(float64(d.Near))
	}
	if d.Remembered {
		m.remembered.WithLabelValues(d.Domain, path).Add(float64(d.Cost))
	}
	told, rest := parts(d)
	if rest > 0 {
		m.hits.WithLabelValues(d.Domain, path, resultRest).Add(float64(rest))
	}
	m.hits.WithLabelValues(d.Domain, path, string(d.Result)).Add(float64(told))
}

// parts are how much of a cost counts under the decision's result, and how much as the rest of a refused one.
func parts(d *rls.Decided) (told, rest int64) {
	if d.Over > 0 && d.Over < d.Cost {
		return d.Over, d.Cost - d.Over
	}
	return d.Cost, 0
}
