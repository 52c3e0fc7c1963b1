package metrics

import (
	"regexp"
	"strings"
	"sync"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

// replaced tells what is counted by the names of the service that this one replaces. It counts nothing itself: all is
// worked out from the native counters when it is asked for.
type replaced struct {
	m         *Metrics
	addresses *regexp.Regexp
	options   ReplacedOptions
	gauges    []oldGauge

	// mu is held by who reads all limits, and while some of them go. It is taken before m.mu.
	mu sync.Mutex
	// retired is what limits that are gone counted under labels that others still have, whose sum must not fall.
	retired map[oldLabels]oldCounts
}

// oldName is what the replaced service calls a limit.
type oldName struct {
	key    string // in statsd
	labels oldLabels
}

type oldLabels struct {
	domain, key1, key2 string
}

// oldCounts are the counters of a limit.
type oldCounts [kinds]float64

const (
	totalHits = iota
	withinLimit
	nearLimit
	overLimit
	overFromCache
	shadowMode
	kinds
)

var kindNames = [kinds]string{
	"total_hits", "within_limit", "near_limit", "over_limit", "over_limit_with_local_cache", "shadow_mode",
}

// kindsOf are those in which the hits of a result count. Of what is unlimited, exempt or replaced there are none.
var kindsOf = map[string][]int{
	string(rls.ResultOK):              {totalHits, withinLimit},
	string(rls.ResultNearLimit):       {totalHits, withinLimit},
	string(rls.ResultOverLimit):       {totalHits, overLimit},
	string(rls.ResultShadowOverLimit): {totalHits, overLimit, shadowMode},
	resultRest:                        {totalHits},
	string(rls.ResultFailed):          {totalHits},
}

// oldLimit is what a limit counted.
type oldLimit struct {
	name   oldName
	counts oldCounts
}

func newReplaced(m *Metrics) *replaced {
	return &replaced{m: m, addresses: regexp.MustCompile(`\d+\.\d+\.\d+\.\d+`), retired: map[oldLabels]oldCounts{}}
}

func (r *replaced) name(domain string, p *descriptors.MetricPath) oldName {
	return oldName{r.clean(p.Path), oldLabels{r.clean(domain), r.clean(p.Keys[0]), r.clean(p.Keys[1])}}
}

// clean makes text a part of a name in statsd.
func (r *replaced) clean(text string) string {
	text = strings.Map(func(c rune) rune {
		if c == ':' || c == '|' || unicode.IsControl(c) {
			return '_'
		}
		return c
	}, strings.ToValidUTF8(text, "?"))
	return r.addresses.ReplaceAllStringFunc(text, func(address string) string { return strings.ReplaceAll(address, ".", "_") })
}

// other is the name of the values that are too many for a limit.
func (n oldName) other() oldName {
	n.key += other
	if n.labels.key2 != "" {
		n.labels.key2 += other
	} else {
		n.labels.key1 += other
	}
	return n
}

// names are all limits that have series, with nothing counted yet.
func (r *replaced) names() map[series]*oldLimit {
	list := map[series]*oldLimit{}
	h := r.m.quick.Load()
	for s := range h.limits {
		list[s] = &oldLimit{name: h.names[s]}
	}
	r.m.mu.Lock()
	defer r.m.mu.Unlock()
	for rule, paths := range r.m.values {
		for path, name := range paths {
			list[series{rule.domain, path}] = &oldLimit{name: name}
		}
	}
	return list
}

// count counts the limits of a list, and adds those of requests' own to it.
func (r *replaced) count(list map[series]*oldLimit) {
	h := r.m.quick.Load()
	add := func(labels []*dto.LabelPair, n float64, kinds ...int) {
		s := series{value(labels, "domain"), value(labels, "rule")}
		l := list[s]
		if name, ok := h.names[s]; l == nil && ok {
			l = &oldLimit{name: name}
			list[s] = l
		}
		for _, kind := range kinds {
			if l != nil {
				l.counts[kind] += n
			}
		}
	}
	each(r.m.hits, func(labels []*dto.LabelPair, n float64) { add(labels, n, kindsOf[value(labels, "result")]...) })
	each(r.m.near, func(labels []*dto.LabelPair, n float64) { add(labels, n, nearLimit) })
	each(r.m.remembered, func(labels []*dto.LabelPair, n float64) { add(labels, n, overFromCache) })
}

// limits are all limits that have series.
func (r *replaced) limits() map[series]*oldLimit {
	list := r.names()
	r.count(list)
	return list
}

// byLabels adds up the limits that have the same labels: those of deeper levels than two, and their like that are gone.
func (r *replaced) byLabels() map[oldLabels]oldCounts {
	r.mu.Lock()
	defer r.mu.Unlock()
	sums := map[oldLabels]oldCounts{}
	for _, l := range r.limits() {
		sums[l.name.labels] = sums[l.name.labels].plus(&l.counts)
	}
	for labels, counts := range r.retired {
		if sum, live := sums[labels]; live {
			sums[labels] = sum.plus(&counts)
		}
	}
	return sums
}

func (c oldCounts) plus(d *oldCounts) oldCounts {
	for kind := range c {
		c[kind] += d[kind]
	}
	return c
}

// retire keeps what limits counted that are about to go, as long as others have their labels. r.mu is held.
func (r *replaced) retire(list map[series]*oldLimit, gone []series) {
	if len(gone) == 0 {
		return
	}
	r.count(list)
	for _, s := range gone {
		if l := list[s]; l != nil {
			r.retired[l.name.labels] = r.retired[l.name.labels].plus(&l.counts)
		}
	}
	live := map[oldLabels]bool{}
	for _, l := range r.names() {
		live[l.name.labels] = true
	}
	for labels := range r.retired {
		if !live[labels] {
			delete(r.retired, labels)
		}
	}
}

// each calls f for each series of a counter.
func each(v *prometheus.CounterVec, f func(labels []*dto.LabelPair, n float64)) {
	all := make(chan prometheus.Metric, 64)
	go func() {
		v.Collect(all)
		close(all)
	}()
	for one := range all {
		var out dto.Metric
		if one.Write(&out) == nil { // a counter's never fails
			f(out.GetLabel(), out.GetCounter().GetValue())
		}
	}
}

// value is that of a label.
func value(labels []*dto.LabelPair, name string) string {
	for _, l := range labels {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}
