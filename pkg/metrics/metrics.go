// Package metrics counts what the service does for Prometheus. Its series are bounded by the rules that are
// loaded: no text that a client chooses becomes a label.
package metrics

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc/codes"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

// Metrics is a registry of its own. Any number of goroutines may use it.
type Metrics struct {
	registry *prometheus.Registry

	requests, decisions, hits, unmatched *prometheus.CounterVec
	badOverrides, degraded, overflows    *prometheus.CounterVec
	shadowed                             *prometheus.CounterVec
	near, remembered                     *prometheus.CounterVec
	storeErrors, gaveBack                *prometheus.CounterVec
	reloads, reloadFailures, storeResets prometheus.Counter
	badRequests                          prometheus.Counter
	late                                 *prometheus.CounterVec
	duration, granted                    prometheus.Histogram
	storeDuration, batchSize, queued     prometheus.Histogram
	config, rules                        *prometheus.GaugeVec
	reloadOK, reloadTime                 prometheus.Gauge

	unknownDomain prometheus.Counter
	empty         *prometheus.CounterVec

	quick    atomic.Pointer[handles]
	scraped  *scraped
	replaced *replaced
	native   map[string]*prometheus.CounterVec // all of them, by what they are called

	mu     sync.Mutex
	series map[series]bool               // of the rules in force
	values map[series]map[string]oldName // of those, the paths with values in them
	held   int                           // paths in values
	capped prometheus.Counter
}

// The most paths with values in them that there are series of, and the longest: their values are what clients choose.
const (
	maxValuesOfARule = 200
	maxValues        = 20_000
	maxValuePath     = 512
)

// other stands for the values that are too many.
const other = "/_other"

// series is what the metrics of one limit have in common.
type series struct {
	domain, path string
}

// results are all that a descriptor's result can be.
var results = [...]rls.Result{
	rls.ResultOK, rls.ResultNearLimit, rls.ResultOverLimit, rls.ResultShadowOverLimit, rls.ResultUnlimited, rls.ResultReplaced, rls.ResultExempt,
	rls.ResultFailed,
}

// latencyBuckets suit a caller that waits for 20 ms.
var latencyBuckets = []float64{
	.00025, .0005, .001, .002, .005, .01, .015, .02, .03, .05, .1,
}

// requestBuckets have those of Prometheus's own, which dashboards of the replaced service may name, among them.
var requestBuckets = []float64{
	.00025, .0005, .001, .002, .005, .01, .015, .02, .025, .03, .05, .1, .25, .5, 1, 2.5, 5, 10,
}

// deadlineBuckets go from what is hardly enough to what is never used up.
var deadlineBuckets = []float64{.005, .01, .02, .03, .05, .1, .25, .5, 1, 5, 10}

var batchBuckets = []float64{1, 2, 4, 8, 16, 32, 64, 128}

// New returns metrics for a build of the given version.
func New(version string) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(), values: map[series]map[string]oldName{}, native: map[string]*prometheus.CounterVec{},
	}
	m.quick.Store(&handles{})
	m.requests = m.counters("requests_total", "Calls answered.", "domain", "code")
	m.decisions = m.counters("decisions_total", "Descriptors decided, by rule and result.", "domain", "rule", "result")
	m.hits = m.counters("hits_total",
		"What those descriptors cost, give-backs apart. Of a refused cost, over_limit is what lay beyond the limit.",
		"domain", "rule", "result")
	m.near = m.counters("near_limit_hits_total", "Of the hits, those in the last part before the limit.", "domain", "rule")
	m.remembered = m.counters("deny_cache_refused_hits_total",
		"Of the hits, those that were refused from memory, without asking the store.", "domain", "rule")
	m.unmatched = m.counters("unmatched_descriptors_total",
		"Descriptors without a rule; the domain is empty where no rules name it.", "domain")
	m.unknownDomain = m.counters("unknown_domain_total", "Calls for a domain that no rules name.").WithLabelValues()
	m.empty = m.counters("empty_descriptors_total", "Descriptors without entries, which no rule can match.", "domain")
	m.shadowed = m.counters("global_shadow_mode_total", "Calls answered OK that were over their limit, since all limits are only tried out.",
		"domain")
	m.scraped = newScraped(m)
	m.registry.MustRegister(m.scraped)
	m.replaced = newReplaced(m)
	m.registry.MustRegister(m.replaced)
	m.badOverrides = m.counters("bad_overrides_total", "Limits in requests that can't be used.", "domain")
	m.degraded = m.counters("degraded_answers_total", "Hits that a failure policy answered for.", "domain", "policy", "reason")
	m.overflows = m.counters("overflow_hits_total",
		"Descriptors that shared the counter of their rule's values that are too many.", "domain", "rule")
	m.capped = m.counters("series_capped_total", "Decisions counted under _other, since their rule has too many values.").
		WithLabelValues()
	m.storeErrors = m.counters("store_errors_total", "Batches that the store failed to decide.", "reason")
	m.storeResets = m.counters("store_resets_total", "Times that the store was found to have lost its counters.").WithLabelValues()
	m.gaveBack = m.counters("given_back_hits_total",
		"Hits admitted locally in an outage, which the store was told of afterwards, or was not.", "result")
	m.reloads = m.counters("config_reloads_total", "Loads without an error.").WithLabelValues()
	m.reloadFailures = m.counters("config_reload_failures_total", "Loads with an error.").WithLabelValues()
	m.config = m.gauges("config_info", "The rules in force; 1.", "hash", "source")
	m.rules = m.gauges("rules", "Rules in force.", "domain")
	m.reloadOK = m.gauges("config_last_reload_successful", "1 if the last load had no error.").WithLabelValues()
	m.reloadTime = m.gauges("config_last_reload_success_timestamp_seconds", "When rules were last loaded.").WithLabelValues()
	m.gauges("build_info", "The running build; 1.", "version").WithLabelValues(version).Set(1)
	m.badRequests = m.counters("bad_requests_total", "Calls that failed by what they ask, or for want of rules.").WithLabelValues()
	m.late = m.counters("late_answers_total", "Calls whose caller had left before they were answered.", "domain")
	m.duration = m.histogram("request_duration_seconds", "Time to answer a call over gRPC.", requestBuckets)
	m.granted = m.histogram("request_deadline_seconds", "What callers grant a call on its arrival.", deadlineBuckets)
	m.storeDuration = m.histogram("store_request_duration_seconds", "Time of a call of the store.", latencyBuckets)
	m.batchSize = m.histogram("store_batch_size", "Requests that shared a call of the store.", batchBuckets)
	m.queued = m.histogram("queue_seconds", "How long the first of these requests had waited for the call.", latencyBuckets)
	m.registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

const namespace = "envoy_rls"

func (m *Metrics) counters(name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
	m.registry.MustRegister(v)
	m.native[name] = v
	return v
}

func (m *Metrics) histogram(name, help string, buckets []float64) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets})
	m.registry.MustRegister(h)
	return h
}

func (m *Metrics) gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, labels)
	m.registry.MustRegister(v)
	return v
}

// CounterFunc adds a counter with one label. The function that it returns adds a series, whose value is asked
// for when it is read.
func (m *Metrics) CounterFunc(name, help, label string) func(labelValue string, value func() float64) {
	return func(labelValue string, value func() float64) {
		m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Namespace: namespace, Name: name, Help: help, ConstLabels: prometheus.Labels{label: labelValue},
		}, value))
	}
}

// GaugeFunc is CounterFunc for a gauge. Without a label's name it has a single series.
func (m *Metrics) GaugeFunc(name, help, label string) func(labelValue string, value func() float64) {
	return func(labelValue string, value func() float64) {
		o := prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}
		if label != "" {
			o.ConstLabels = prometheus.Labels{label: labelValue}
		}
		m.registry.MustRegister(prometheus.NewGaugeFunc(o, value))
	}
}

// StoreReset is told that the store has lost its counters.
func (m *Metrics) StoreReset() { m.storeResets.Inc() }

// GaveBack is told of hits that were admitted locally and given back to the store, or lost by err.
func (m *Metrics) GaveBack(hits int64, err error) {
	result := "ok"
	if err != nil {
		result = "error"
	}
	m.gaveBack.WithLabelValues(result).Add(float64(max(hits, 0)))
}

// Handler serves the metrics in the format that the client asks for.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry})
}

// Loaded says which rules are in force since now, and whether every file of theirs was good. All their
// series exist from now on, at 0, so that the first refusal is an increase.
func (m *Metrics) Loaded(rules *descriptors.Ruleset, source string, good bool) {
	m.config.Reset()
	m.config.WithLabelValues(rules.Hash, source).Set(1)
	m.rules.Reset()
	now := map[series]bool{}
	for d := range rules.Domains {
		m.rules.WithLabelValues(d.Name).Set(float64(len(d.Rules())))
		now[series{d.Name, d.Name + rls.BroughtAlong}] = true
		for _, r := range d.Rules() {
			m.start(r, now)
		}
	}
	after := m.handlesOf(rules)
	m.replaced.mu.Lock()
	names := m.replaced.names()
	before := m.quick.Swap(after)
	m.forget(now, names)
	m.replaced.mu.Unlock()
	for key := range before.requests {
		if rules.Domain(key.domain) == nil {
			m.forgetDomain(key.domain)
		}
	}
	m.reloadTime.SetToCurrentTime()
	m.reloaded(good)
}

// forget drops the series of rules that are no longer in force, of which it is told the names.
func (m *Metrics) forget(now map[series]bool, names map[series]*oldLimit) {
	gone := m.gone(now)
	m.replaced.retire(names, gone)
	for _, s := range gone {
		m.drop(s.domain, s.path)
	}
}

// gone are the series that there were and are not now.
func (m *Metrics) gone(now map[series]bool) (gone []series) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for s := range m.series {
		if now[s] {
			continue
		}
		gone = append(gone, s)
		for path := range m.values[s] {
			gone = append(gone, series{s.domain, path})
		}
		m.held -= len(m.values[s])
		delete(m.values, s)
	}
	m.series = now
	return gone
}

// forgetDomain drops the series of a domain that no rules name any more.
func (m *Metrics) forgetDomain(name string) {
	for _, v := range []*prometheus.CounterVec{m.requests, m.unmatched, m.empty, m.badOverrides, m.degraded, m.late, m.shadowed} {
		v.DeletePartialMatch(prometheus.Labels{"domain": name})
	}
}

func (m *Metrics) drop(domain, path string) {
	for _, result := range results {
		m.decisions.DeleteLabelValues(domain, path, string(result))
		m.hits.DeleteLabelValues(domain, path, string(result))
	}
	m.hits.DeleteLabelValues(domain, path, resultRest)
	m.near.DeleteLabelValues(domain, path)
	m.remembered.DeleteLabelValues(domain, path)
	m.overflows.DeleteLabelValues(domain, path)
}

// label is the path that a decision is counted under: with values, while these are not too many or too long.
func (m *Metrics) label(d *rls.Decided) string {
	if d.Values == nil {
		return d.Path
	}
	path := strings.ToValidUTF8(d.Values.Path, "?")
	m.mu.Lock()
	defer m.mu.Unlock()
	key := series{d.Domain, d.Path}
	values := m.values[key]
	if _, held := values[path]; held {
		return path
	}
	if len(path) > maxValuePath || len(values) >= maxValuesOfARule || m.held >= maxValues {
		m.capped.Inc()
		path = d.Path + other
		if _, held := values[path]; !held {
			m.hold(key, path, m.quick.Load().names[key].other())
		}
		return path
	}
	m.hold(key, path, m.replaced.name(d.Domain, d.Values))
	return path
}

func (m *Metrics) hold(key series, path string, name oldName) {
	if m.values[key] == nil {
		m.values[key] = map[string]oldName{}
	}
	m.values[key][path] = name
	m.held++
}

// start makes the series of a rule, and notes them.
func (m *Metrics) start(r *descriptors.Rule, now map[series]bool) {
	now[series{r.Domain, r.Path}] = true
	if r.Bounded() {
		m.overflows.WithLabelValues(r.Domain, r.Path)
	}
	switch {
	case r.Exempt:
		m.decisions.WithLabelValues(r.Domain, r.Path, string(rls.ResultExempt))
	case r.Unlimited:
		m.decisions.WithLabelValues(r.Domain, r.Path, string(rls.ResultUnlimited))
	}
	for i := range r.Limits {
		now[series{r.Domain, r.Limits[i].Path}] = true
	}
}

// Refused says that a load changed nothing, since it had errors.
func (m *Metrics) Refused() { m.reloaded(false) }

func (m *Metrics) reloaded(good bool) {
	if good {
		m.reloadOK.Set(1)
		m.reloads.Inc()
		return
	}
	m.reloadOK.Set(0)
	m.reloadFailures.Inc()
}

// Events returns what to give to an rls.Service.
func (m *Metrics) Events() rls.Events {
	return rls.Events{
		Answered:    m.answered,
		Decided:     m.decided,
		Unmatched:   func(u rls.Unmatched) { m.unmatched.WithLabelValues(u.Domain).Inc() },
		Empty:       func(domain string) { m.empty.WithLabelValues(domain).Inc() },
		BadOverride: func(domain string) { m.badOverrides.WithLabelValues(domain).Inc() },
		Degraded: func(domain string, policy limiter.FailurePolicy, reason string) {
			m.degraded.WithLabelValues(domain, policy.String(), reason).Inc()
		},
		Overflow:    func(domain, path string) { m.overflows.WithLabelValues(domain, path).Inc() },
		StoreFailed: func(_ error, reason string) { m.storeErrors.WithLabelValues(reason).Inc() },
	}
}

func (m *Metrics) answered(a rls.Answered) {
	label := codeOK
	switch {
	case a.Code != codes.OK:
		label = codeError
	case a.OverLimit:
		label = codeOverLimit
	}
	h := m.quick.Load()
	if c := h.requests[request{a.Domain, label}]; c != nil {
		c.Inc()
	} else {
		m.requests.WithLabelValues(a.Domain, label).Inc()
	}
	if a.Shadowed {
		m.shadowed.WithLabelValues(a.Domain).Inc()
	}
	if isBad(a.Code) || label == codeError && h.requests == nil {
		m.badRequests.Inc()
	}
	if a.Domain == "" && a.Code == codes.OK {
		m.unknownDomain.Inc()
	}
	if a.GRPC {
		m.duration.Observe(a.Took.Seconds())
	}
	if a.Granted > 0 {
		m.granted.Observe(a.Granted.Seconds())
	}
	if a.Late {
		m.late.WithLabelValues(a.Domain).Inc()
	}
}

// isBad tells whether a call failed by itself: not by the store, nor since its caller had left.
func isBad(code codes.Code) bool {
	return code == codes.InvalidArgument || code == codes.Unknown || code == codes.Internal
}

// StoreCalled is told of each call of a store, how many requests shared it, how long the first of them had waited for it
// and how long it took.
func (m *Metrics) StoreCalled(requests int, waited, took time.Duration) {
	m.queued.Observe(waited.Seconds())
	m.storeDuration.Observe(took.Seconds())
	m.batchSize.Observe(float64(requests))
}

func (m *Metrics) decided(d rls.Decided) {
	if d.Values == nil {
		if l := m.quick.Load().limits[series{d.Domain, d.Path}]; l != nil && l.count(m, &d) {
			return
		}
	}
	m.countSlowly(&d, m.label(&d))
}
