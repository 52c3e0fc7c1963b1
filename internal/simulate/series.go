package simulate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/envoy-rls/envoy-rls/internal/chart"
	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

// points are about how many a Series has.
const points = 600

// Series is what came to one counter, and what of it was admitted, over time.
type Series struct {
	set   *Set
	who   Who
	limit descriptors.Limit
	from  int64
	step  int64 // µs
	steps int   // of a period; 0: a step is longer
	// By step:
	asked, admitted []int64
}

// NewSeries is for a run of s over traffic that goes from one instant to another, in µs since the Unix epoch.
func NewSeries(s *Set, who Who, from, to int64) *Series {
	series := &Series{set: s, who: who, limit: s.limit(who.Limit), from: from, step: max((to-from)/points, 1)}
	if period := series.limit.Period.Microseconds(); series.step <= period {
		series.steps = int((period + series.step - 1) / series.step)
		series.step = period / int64(series.steps)
	}
	return series
}

// Add is told of each request, and what the set says to it.
func (s *Series) Add(r *Request, v Verdict) {
	for i := range v.Decided {
		d := &v.Decided[i]
		if d.Path != s.who.Limit || !s.isWho(s.set.Counted(r, d)) {
			continue
		}
		n := int((s.set.now - s.from) / s.step)
		for len(s.asked) <= n {
			s.asked, s.admitted = append(s.asked, 0), append(s.admitted, 0)
		}
		cost := int64(1)
		if r.Costs {
			cost = int64(min(r.Cost, 1<<32))
		}
		s.asked[n] += cost
		if !v.Refused && d.Result != rls.ResultReplaced {
			s.admitted[n] += cost
		}
	}
}

func (s *Series) isWho(entries []descriptors.Entry) bool {
	return slices.EqualFunc(entries, s.who.Values, func(a, b descriptors.Entry) bool {
		return a.Key == b.Key && shortened(a.Value) == b.Value
	})
}

// SVG draws the series: at each instant what came, and what was admitted, within the period before, which is what a limit
// is about. whom is how the counter's client is named.
func (s *Series) SVG(whom string) ([]byte, error) {
	if len(s.asked) == 0 {
		return nil, fmt.Errorf("nothing came to %s", s.who.Limit)
	}
	step := time.Duration(s.step) * time.Microsecond
	period := s.limit.Unit.Words(s.limit.Multiplier)
	c := chart.Rate{
		Title:    strings.TrimSpace(s.who.Limit + "  " + whom),
		Subtitle: fmt.Sprintf("Hits within the last %s. The limit is %d, by %s.", period, s.limit.Requests, s.limit.Algorithm),
		Limit:    int64(s.limit.Requests), From: time.UnixMicro(s.from).Add(step).UTC(), Step: step,
		Asked: s.within(s.asked), Admitted: s.within(s.admitted),
	}
	if s.steps == 0 {
		c.Subtitle = fmt.Sprintf("Hits per %s, on average of %s each. The limit is %d, by %s.",
			period, step.Round(time.Second), s.limit.Requests, s.limit.Algorithm)
	}
	return c.SVG()
}

// within is what there is in each period, by its last step; of longer steps what there is in a period on average.
func (s *Series) within(values []int64) []int64 {
	list := make([]int64, len(values))
	if s.steps == 0 {
		list = list[:max(len(list)-1, 1)] // the last step is cut short
		for i, v := range values[:len(list)] {
			list[i] = int64(float64(v) * float64(s.limit.Period.Microseconds()) / float64(s.step))
		}
		return list
	}
	sum := int64(0)
	for i, v := range values {
		sum += v
		if i >= s.steps {
			sum -= values[i-s.steps]
		}
		list[i] = sum
	}
	return list
}

// limit is that of a path, or the one that requests bring along.
func (s *Set) limit(path string) descriptors.Limit {
	var l descriptors.Limit
	if s.domain != nil {
		for _, r := range s.domain.Rules() {
			i := slices.IndexFunc(r.Limits, func(l descriptors.Limit) bool { return l.Path == path })
			if i >= 0 {
				l = r.Limits[i]
			}
		}
	}
	if o := s.options.Limit; o != nil {
		l.Requests, l.Unit, l.Multiplier = o.GetRequestsPerUnit(), descriptors.Unit(o.GetUnit()), max(o.GetUnitMultiplier().GetValue(), 1)
		l.Period, _ = l.Unit.Period(l.Multiplier)
	}
	return l
}
