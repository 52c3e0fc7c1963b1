// Package top knows who is refused most and what is counted most, of the last minute or so, in bounded memory. Calls are
// looked at one by one while they are few, and by samples otherwise.
package top

import (
	"cmp"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

// Period is the least time that a report is about, and half of the most, but for the first.
const Period = 30 * time.Second

// kept is how many things of a kind are counted in a period, and how many calls of the store are remembered.
const (
	kept      = 256
	keptTimes = 1024
)

// Top looks at calls. Any number of goroutines may use it.
type Top struct {
	began           time.Time
	seed            maphash.Seed
	passing, denied sampler

	mu          sync.Mutex
	now, before *period
}

// period is what was seen in a part of the time.
type period struct {
	began, ended   time.Duration // since Top began
	calls, refused int64
	rules          *sketch // denials by limit
	values         *sketch // denials by counter
	counters       *sketch // hits by counter
	times          [keptTimes]time.Duration
	called         int // calls of the store
}

// New returns a Top that began at an instant of the clock that calls end by.
func New(began time.Time) *Top {
	return &Top{began: began, seed: maphash.MakeSeed(), now: newPeriod(), before: newPeriod()}
}

func newPeriod() *period {
	return &period{rules: newSketch(kept), values: newSketch(kept), counters: newSketch(kept)}
}

func (p *period) reset(began time.Duration) {
	p.began, p.ended, p.calls, p.refused, p.called = began, began, 0, 0, 0
	for _, s := range []*sketch{p.rules, p.values, p.counters} {
		s.reset()
	}
}

// Observe looks at a call, for rls.Options.Observe.
func (t *Top) Observe(o rls.Outcome) {
	denies := o.Denies()
	s := &t.passing
	if denies {
		s = &t.denied
	}
	weight := s.weight()
	if weight == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	at := o.Ended.Sub(t.began)
	s.took(at)
	p := t.at(at)
	p.calls += weight
	if o.OverLimit {
		p.refused += weight
	}
	for j := range o.Limits {
		t.count(p, &j, weight)
	}
}

func (t *Top) count(p *period, j *rls.Judged, weight int64) {
	hash, would := maphash.String(t.seed, j.Counter), j.Verdict == rls.WouldRefuse
	if l := p.counters.add(hash, weight); l != nil {
		l.write(j.Path, false, j.Entries)
	}
	if j.Verdict == rls.Passes {
		return
	}
	if l := p.values.add(hash, weight); l != nil {
		l.write(j.Path, would, j.Entries)
	}
	if l := p.rules.add(maphash.String(t.seed, j.Path), weight); l != nil {
		l.write(j.Path, would, nil)
	}
}

// StoreCalled is told how long a call of the store took, which ended at an instant of the calls' clock.
func (t *Top) StoreCalled(ended time.Time, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.at(ended.Sub(t.began))
	p.times[p.called%keptTimes] = took
	p.called++
}

// at is the period of a time, or the present one if that is later. Periods begin at whole ones since the beginning; of
// an idle one nothing was seen.
func (t *Top) at(at time.Duration) *period {
	if idle := at - t.now.began - Period; idle >= 0 {
		t.now, t.before = t.before, t.now
		begins := at - at%Period
		if idle >= Period {
			t.before.reset(begins - Period)
		}
		t.before.ended = begins
		t.now.reset(begins)
	}
	t.now.ended = max(t.now.ended, at)
	return t.now
}

// Row is one of those that occur most.
type Row struct {
	// Rule is the path of a limit.
	Rule string
	// WouldRefuse tells that the limit is only tried out: what it denied was let pass.
	WouldRefuse bool
	// Entries are a descriptor's, as a client sent them, but for what is too long or too many: then Cut is set. A row about
	// all descriptors of a limit has none.
	Entries []descriptors.Entry
	Cut     bool
	// Count is how often it occurred, about; and Over by how much that may be too high.
	Count, Over int64
}

// Report is what was seen of late.
type Report struct {
	// Span is the time that it is about.
	Span time.Duration
	// Calls and Refused are how many calls were answered, and of these refused; about.
	Calls, Refused int64
	// Rules are the limits that denied most calls, Values the descriptors that were denied most, and Counters those that
	// were counted most, by limits: the most frequent first.
	Rules, Values, Counters []Row
	// StoreCalls is how many times the store was called, and Median and P99 are the times that this took of late.
	StoreCalls  int
	Median, P99 time.Duration
}

// Report tells of the time before an instant of the calls' clock, at most n rows of each kind.
func (t *Top) Report(at time.Time, n int) Report {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.at(at.Sub(t.began))
	r := Report{
		Span:  now.ended - now.began + t.before.ended - t.before.began,
		Calls: now.calls + t.before.calls, Refused: now.refused + t.before.refused,
		Rules:    rows(n, t.before.rules, now.rules),
		Values:   rows(n, t.before.values, now.values),
		Counters: rows(n, t.before.counters, now.counters),

		StoreCalls: now.called + t.before.called,
	}
	times := slices.Concat(t.before.times[:min(t.before.called, keptTimes)], now.times[:min(now.called, keptTimes)])
	if len(times) > 0 {
		slices.Sort(times)
		r.Median, r.P99 = times[len(times)/2], times[len(times)*99/100]
	}
	return r
}

// rows are the n most frequent of both sketches together.
func rows(n int, sketches ...*sketch) []Row {
	sum := map[uint64]*slot{}
	for _, s := range sketches {
		for i := range s.slots[:s.used] {
			own := s.slots[i]
			if seen := sum[own.hash]; seen != nil {
				own.count, own.over = own.count+seen.count, own.over+seen.over
			}
			sum[own.hash] = &own
		}
	}
	list := make([]*slot, 0, len(sum))
	for _, s := range sum {
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b *slot) int {
		return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(a.what.rule, b.what.rule), slices.Compare(a.what.text, b.what.text))
	})
	result := make([]Row, 0, n)
	for _, s := range list[:min(n, len(list))] {
		result = append(result, Row{
			Rule: s.what.rule, WouldRefuse: s.what.would, Entries: s.what.entries(), Cut: s.what.cut, Count: s.count, Over: s.over,
		})
	}
	return result
}
