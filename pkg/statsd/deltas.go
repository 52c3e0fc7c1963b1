package statsd

import (
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/metrics"
)

// sample is a number to send.
type sample struct {
	name  string
	kind  kind
	value float64
	calls uint64 // how many took a time
}

type kind string

// The kinds, as statsd has them.
const (
	kindCounter kind = "c"
	kindGauge   kind = "g"
	kindTime    kind = "ms"
)

// deltas remembers what was sent.
type deltas struct {
	last  map[string]float64
	times map[string]*metrics.Times
}

// take returns what is to be sent, and takes it for sent.
func (d *deltas) take(stats []metrics.Stat) (list []sample) {
	now := deltas{map[string]float64{}, map[string]*metrics.Times{}}
	for _, s := range stats {
		switch {
		case s.Times != nil:
			now.times[s.Name] = s.Times
			list = append(list, times(s.Name, s.Times, d.times[s.Name])...)
		case s.Gauge:
			list = append(list, sample{name: s.Name, kind: kindGauge, value: s.Value})
		default:
			now.last[s.Name] = s.Value
			if n := added(s.Value, d.last[s.Name]); n > 0 {
				list = append(list, sample{name: s.Name, kind: kindCounter, value: n})
			}
		}
	}
	*d = now
	return list
}

// added is by how much a counter has grown; one that is less than it was has begun anew.
func added(now, before float64) float64 {
	if now < before {
		return now
	}
	return now - before
}

// times is a sample for each range that calls took since before, such that all come to the sum that they took.
func times(name string, now, before *metrics.Times) (list []sample) {
	if before == nil {
		before = &metrics.Times{Counts: make([]uint64, len(now.Counts))}
	}
	total, from := 0.0, time.Duration(0)
	for i := range now.Counts {
		upTo := from // the last range ends nowhere
		if i < len(now.UpTo) {
			upTo = now.UpTo[i]
		}
		middle := float64(from+upTo) / 2
		if calls := now.Counts[i] - before.Counts[i]; calls > 0 {
			total += middle * float64(calls)
			list = append(list, sample{name: name, kind: kindTime, value: middle, calls: calls})
		}
		from = upTo
	}
	for i := range list {
		list[i].value *= float64(now.Sum-before.Sum) / total / float64(time.Millisecond)
	}
	return list
}
