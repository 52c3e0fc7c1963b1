package metrics

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// ReplacedOptions say how the series by the names of the replaced service look.
type ReplacedOptions struct {
	// Tags are labels that all of them have. Where a name has characters that labels can't have, they become _.
	Tags map[string]string
	// Milliseconds tells response times in milliseconds, though the series' name says seconds.
	Milliseconds bool
}

// Replaced says how the series by the names of the replaced service look. Call it before metrics are read.
func (m *Metrics) Replaced(o ReplacedOptions) { m.replaced.options = o }

// Validate reports tags that can't be labels.
func (o ReplacedOptions) Validate() error {
	var errs []error
	seen := map[string]string{}
	for _, tag := range slices.Sorted(maps.Keys(o.Tags)) {
		label := labelName(tag)
		switch first, twice := seen[label]; {
		case slices.Contains([]string{"domain", "key1", "key2", "grpc_method", "err_type", "le"}, label):
			errs = append(errs, fmt.Errorf("%q is a label that series have by themselves; choose another name", tag))
		case strings.Trim(label, "_0123456789") == "" || strings.HasPrefix(label, "__"):
			errs = append(errs, fmt.Errorf("%q can't be a label; begin with a letter", tag))
		case twice:
			errs = append(errs, fmt.Errorf("%q and %q are one label, %s; choose another name", first, tag, label))
		}
		seen[label] = tag
	}
	return errors.Join(errs...)
}

// labelName is the label that a tag becomes.
func labelName(tag string) string {
	name := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' {
			return c
		}
		return '_'
	}, tag)
	if name != "" && name[0] >= '0' && name[0] <= '9' {
		name = "_" + name
	}
	return name
}

const oldNamespace = "ratelimit_service_"

const oldHelp = "By the name of envoyproxy/ratelimit; see docs/metrics.md."

// desc is made anew for each scrape: there are a few, whatever the number of series.
func (r *replaced) desc(name string, labels ...string) *prometheus.Desc {
	tags := prometheus.Labels{}
	for tag, value := range r.options.Tags {
		tags[labelName(tag)] = value
	}
	return prometheus.NewDesc(name, oldHelp, labels, tags)
}

// Describe implements prometheus.Collector. It says nothing, since series of one name have key2 or not, which is fine for
// those that are not described.
func (r *replaced) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (r *replaced) Collect(to chan<- prometheus.Metric) {
	r.collectLimits(to)
	for i := range totals {
		t := &totals[i]
		if t.errType != "" {
			to <- counter(r.desc(oldNamespace+t.prometheus, "err_type"), t.of(r.m), t.errType)
			continue
		}
		to <- counter(r.desc(oldNamespace+t.prometheus), t.of(r.m))
	}
	for _, g := range r.gauges {
		desc := r.desc(strings.ReplaceAll(g.statsd, ".", "_"))
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, g.value())
	}
	r.collectTimes(to)
}

func counter(desc *prometheus.Desc, n float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(desc, prometheus.CounterValue, n, labels...)
}

// collectLimits leaves out what only some limits ever count, until they do.
func (r *replaced) collectLimits(to chan<- prometheus.Metric) {
	var short, deep [kinds]*prometheus.Desc
	for kind, name := range kindNames {
		name = oldNamespace + "rate_limit_" + name
		short[kind], deep[kind] = r.desc(name, "domain", "key1"), r.desc(name, "domain", "key1", "key2")
	}
	for labels, counts := range r.byLabels() {
		for kind, n := range counts {
			switch {
			case n == 0 && (kind == overFromCache || kind == shadowMode):
			case labels.key2 == "":
				to <- counter(short[kind], n, labels.domain, labels.key1)
			default:
				to <- counter(deep[kind], n, labels.domain, labels.key1, labels.key2)
			}
		}
	}
}

func (r *replaced) collectTimes(to chan<- prometheus.Metric) {
	const method = "ShouldRateLimit"
	scale := 1.0
	if r.options.Milliseconds {
		scale = 1000
	}
	h := r.m.answerTimes()
	buckets := map[float64]uint64{}
	for _, b := range h.GetBucket() {
		buckets[b.GetUpperBound()*scale] = b.GetCumulativeCount()
	}
	to <- counter(r.desc(oldNamespace+"total_requests", "grpc_method"), float64(h.GetSampleCount()), method)
	desc := r.desc(oldNamespace+"response_time_seconds", "grpc_method")
	to <- prometheus.MustNewConstHistogram(desc, h.GetSampleCount(), h.GetSampleSum()*scale, buckets, method)
}
