package metrics

import (
	dto "github.com/prometheus/client_model/go"

	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

// Results are how many descriptors had each result, without those that none had.
type Results map[rls.Result]int64

// Decided is what became of descriptors since the start, or since their rule came into force: by domain, and by the path
// of a limit, or of a rule without one. Values that a rule has told apart are summed up in its limit. It is the caller's.
func (m *Metrics) Decided() map[string]map[string]Results {
	limits := m.limitsOfValues()
	all := map[string]map[string]Results{}
	each(m.decisions, func(labels []*dto.LabelPair, n float64) {
		domain, path := value(labels, "domain"), value(labels, "rule")
		if limit, told := limits[series{domain, path}]; told {
			path = limit
		}
		if n == 0 {
			return
		}
		if all[domain] == nil {
			all[domain] = map[string]Results{}
		}
		if all[domain][path] == nil {
			all[domain][path] = Results{}
		}
		all[domain][path][rls.Result(value(labels, "result"))] += int64(n)
	})
	return all
}

// limitsOfValues are the paths of limits, by those with values in them.
func (m *Metrics) limitsOfValues() map[series]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	limits := map[series]string{}
	for limit, values := range m.values {
		for path := range values {
			limits[series{limit.domain, path}] = limit.path
		}
	}
	return limits
}

// Totals sums up a counter, named without the namespace, by the values of one of its labels. An unknown counter has none.
func (m *Metrics) Totals(counter, label string) map[string]int64 {
	sums := map[string]int64{}
	if v := m.native[counter]; v != nil {
		each(v, func(labels []*dto.LabelPair, n float64) { sums[value(labels, label)] += int64(n) })
	}
	return sums
}
