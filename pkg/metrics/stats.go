package metrics

import (
	"bufio"
	"cmp"
	"io"
	"slices"
	"strconv"
	"time"

	dto "github.com/prometheus/client_model/go"
)

// Stat is a number by the name that the replaced service has for it in statsd.
type Stat struct {
	Name  string
	Gauge bool // else it is a counter, from the process's start
	Value float64
	// Times, if not nil, is what there is instead of a value.
	Times *Times
}

// Times are how long calls took, from the process's start.
type Times struct {
	// UpTo are where ranges end, and Counts how many calls are in each; the last range, beyond all ends, has none.
	UpTo   []time.Duration
	Counts []uint64
	Sum    time.Duration
}

// The names in statsd.
const (
	oldLimits       = "ratelimit.service.rate_limit."
	oldRequests     = "ratelimit_server.ShouldRateLimit.total_requests"
	oldResponseTime = "ratelimit_server.ShouldRateLimit.response_time"
)

// total is a counter that is the sum of native ones.
type total struct {
	statsd, prometheus string
	errType            string // a label
	native             string // what is summed up
	unknown            bool   // only what is of no domain
}

// totals name native counters by what they are called there: one that this build doesn't have counts nothing.
var totals = []total{
	{statsd: "ratelimit.service.config_load_success", prometheus: "config_load_success", native: "config_reloads_total"},
	{statsd: "ratelimit.service.config_load_error", prometheus: "config_load_error", native: "config_reload_failures_total"},
	{statsd: "ratelimit.service.global_shadow_mode", prometheus: "global_shadow_mode", native: "global_shadow_mode_total"},
	{
		statsd:     "ratelimit.service.call.should_rate_limit.redis_error",
		prometheus: "should_rate_limit_error", errType: "redis_error", native: "store_errors_total",
	},
	{
		statsd:     "ratelimit.service.call.should_rate_limit.service_error",
		prometheus: "should_rate_limit_error", errType: "service_error", native: "bad_requests_total",
	},
	{
		statsd:     oldLimits + "_other.domain_not_found",
		prometheus: "rate_limit_domain_not_found", native: "unmatched_descriptors_total", unknown: true,
	},
}

// oldGauge is asked for when it is read.
type oldGauge struct {
	statsd string
	value  func() float64
}

// ReplacedGauge adds a gauge under the name that the replaced service has for it in statsd. Call it before metrics are read.
func (m *Metrics) ReplacedGauge(statsd string, value func() float64) {
	m.replaced.gauges = append(m.replaced.gauges, oldGauge{statsd, value})
}

// of is the total's value.
func (t *total) of(m *Metrics) (sum float64) {
	if v := m.native[t.native]; v != nil {
		each(v, func(labels []*dto.LabelPair, n float64) {
			if !t.unknown || value(labels, "domain") == "" {
				sum += n
			}
		})
	}
	return sum
}

// Stats are all numbers by the names that the replaced service has in statsd, in the order of these.
func (m *Metrics) Stats() []Stat {
	m.replaced.mu.Lock()
	limits := m.replaced.limits()
	m.replaced.mu.Unlock()
	byKey := map[string]oldCounts{}
	for _, l := range limits {
		byKey[l.name.key] = byKey[l.name.key].plus(&l.counts)
	}
	var list []Stat
	for key, counts := range byKey {
		for kind, n := range counts {
			list = append(list, Stat{Name: oldLimits + key + "." + kindNames[kind], Value: n})
		}
	}
	for i := range totals {
		list = append(list, Stat{Name: totals[i].statsd, Value: totals[i].of(m)})
	}
	for _, g := range m.replaced.gauges {
		list = append(list, Stat{Name: g.statsd, Gauge: true, Value: g.value()})
	}
	times, requests := m.times()
	list = append(list, Stat{Name: oldRequests, Value: float64(requests)}, Stat{Name: oldResponseTime, Times: times})
	slices.SortFunc(list, func(a, b Stat) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// WriteStats writes Stats, a line each, without the times of calls.
func (m *Metrics) WriteStats(w io.Writer) error {
	lines := bufio.NewWriter(w)
	for _, s := range m.Stats() {
		if s.Times == nil {
			_, _ = lines.WriteString(s.Name + ": " + strconv.FormatFloat(s.Value, 'f', -1, 64) + "\n") // Flush tells
		}
	}
	return lines.Flush()
}

// answerTimes are those of calls over gRPC.
func (m *Metrics) answerTimes() *dto.Histogram {
	var out dto.Metric
	_ = m.duration.Write(&out) // a histogram's never fails
	return out.GetHistogram()
}

func (m *Metrics) times() (times *Times, calls uint64) {
	h := m.answerTimes()
	times = &Times{Sum: time.Duration(h.GetSampleSum() * float64(time.Second))}
	before := uint64(0)
	for _, b := range h.GetBucket() {
		times.UpTo = append(times.UpTo, time.Duration(b.GetUpperBound()*float64(time.Second)))
		times.Counts = append(times.Counts, b.GetCumulativeCount()-before)
		before = b.GetCumulativeCount()
	}
	times.Counts = append(times.Counts, h.GetSampleCount()-before)
	return times, h.GetSampleCount()
}
