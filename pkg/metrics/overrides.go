package metrics

import "github.com/envoy-rls/envoy-rls/pkg/descriptors"

// Overrides adds the gauge of overrides. The function that it returns is told of all that are active, whenever they change.
// Call it once.
func (m *Metrics) Overrides() func(active []descriptors.Override) {
	g := m.gauges("overrides", "Overrides of rules that are active.", "domain", "rule", "kind")
	return func(active []descriptors.Override) {
		g.Reset()
		for i := range active {
			g.WithLabelValues(active[i].Domain, active[i].Rule, string(active[i].Kind)).Inc()
		}
	}
}
