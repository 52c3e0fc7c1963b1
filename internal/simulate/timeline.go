package simulate

import (
	"slices"
	"time"
)

// maxBins bounds a Timeline.
const maxBins = 240

// widths are those of bins. Each is a multiple of the one before.
var widths = []time.Duration{
	time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second,
	time.Minute, 5 * time.Minute, 10 * time.Minute, 30 * time.Minute,
	time.Hour, 3 * time.Hour, 6 * time.Hour, 24 * time.Hour,
	7 * 24 * time.Hour, 28 * 24 * time.Hour, 336 * 24 * time.Hour,
}

// Timeline is how many requests came and were refused, by time. Its bins become wider as it becomes longer, so that it
// needs little memory.
type Timeline struct {
	// Width is that of a bin.
	Width time.Duration
	Bins  []Bin

	first int64 // index of the first bin, from the Unix epoch on
}

// Bin is the requests of a while.
type Bin struct {
	Requests int64
	// Refused is by set.
	Refused [2]int64
}

// at returns the bin of an instant, which is not before that of an earlier call.
func (t *Timeline) at(instant int64) *Bin {
	if len(t.Bins) == 0 {
		t.Width = widths[0]
		t.first = t.index(instant)
	}
	for t.index(instant)-t.first >= maxBins {
		t.coarsen()
	}
	for int64(len(t.Bins)) <= t.index(instant)-t.first {
		t.Bins = append(t.Bins, Bin{})
	}
	return &t.Bins[t.index(instant)-t.first]
}

func (t *Timeline) index(instant int64) int64 { return instant / t.Width.Microseconds() }

// coarsen gives t the next width. Bins of the last hold two centuries, and logs one.
func (t *Timeline) coarsen() {
	next := slices.Index(widths, t.Width) + 1
	ratio := int64(widths[next] / t.Width)
	wider := Timeline{Width: widths[next], first: t.first / ratio}
	for i := range t.Bins {
		n := (t.first+int64(i))/ratio - wider.first
		for int64(len(wider.Bins)) <= n {
			wider.Bins = append(wider.Bins, Bin{})
		}
		wider.Bins[n].Requests += t.Bins[i].Requests
		for set, refused := range t.Bins[i].Refused {
			wider.Bins[n].Refused[set] += refused
		}
	}
	*t = wider
}

// Within returns t with as few bins as wanted, if there is a width for that.
func (t *Timeline) Within(bins int) *Timeline {
	wider := *t
	for len(wider.Bins) > bins && wider.Width < widths[len(widths)-1] {
		wider.coarsen()
	}
	return &wider
}

// From is when bin i begins.
func (t *Timeline) From(i int) time.Time {
	return time.UnixMicro((t.first + int64(i)) * t.Width.Microseconds()).UTC()
}
