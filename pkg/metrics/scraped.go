package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
)

// scraped are gauges with labels whose values are asked for when they are read.
type scraped struct {
	m        *Metrics
	distinct *prometheus.Desc
	most     *prometheus.Desc
	queued   *prometheus.Desc
	lengths  func() map[string]int // by domain; nil: there are no queues
}

func newScraped(m *Metrics) *scraped {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, labels, nil)
	}
	return &scraped{
		m:        m,
		distinct: desc("rule_distinct_values", "About how many values of a rule with max_values were seen in its present period.", "domain", "rule"),
		most:     desc("rule_max_values", "How many values of such a rule have counters of their own.", "domain", "rule"),
		queued:   desc("queue_length", "Requests that wait for the store; the domain is empty where no rules name it.", "domain"),
	}
}

// Describe implements prometheus.Collector.
func (s *scraped) Describe(to chan<- *prometheus.Desc) {
	to <- s.distinct
	to <- s.most
	to <- s.queued
}

// Collect implements prometheus.Collector.
func (s *scraped) Collect(to chan<- prometheus.Metric) {
	h := s.m.quick.Load()
	for _, r := range h.bounded {
		to <- prometheus.MustNewConstMetric(s.distinct, prometheus.GaugeValue, float64(r.DistinctValues()), r.Domain, r.Path)
		to <- prometheus.MustNewConstMetric(s.most, prometheus.GaugeValue, float64(r.MaxValues), r.Domain, r.Path)
	}
	if s.lengths == nil {
		return
	}
	byDomain := map[string]int{}
	for domain, n := range s.lengths() {
		if _, known := h.requests[request{domain, codeOK}]; !known {
			domain = ""
		}
		byDomain[domain] += n
	}
	for domain, n := range byDomain {
		to <- prometheus.MustNewConstMetric(s.queued, prometheus.GaugeValue, float64(n), domain)
	}
}

// Queues says how many requests wait for the store, by domain; it is asked when metrics are read. Call it once.
func (m *Metrics) Queues(lengths func() map[string]int) { m.scraped.lengths = lengths }

// bounded are the rules whose distinct values are bounded.
func bounded(rules *descriptors.Ruleset) (list []*descriptors.Rule) {
	for _, d := range rules.Sorted() {
		for _, r := range d.Rules() {
			if r.Bounded() {
				list = append(list, r)
			}
		}
	}
	return list
}
