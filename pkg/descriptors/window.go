package descriptors

import (
	"fmt"
	"math"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// window is a limit of the replaced service: so many in a fixed window of one unit.
type window struct {
	requests uint32
	unit     Unit
}

func (w window) period() time.Duration { return units[w.unit].length }

// nearestWindow is the fixed window that comes nearest to a limit: of the same number in the long run, rounded down, and
// of the unit that is most like the limit's period, or the time in which a bucket fills. A number that were 0 becomes
// one of a longer unit.
func nearestWindow(l *limiter.Limit) window {
	best, least := window{1, Year}, math.Inf(1)
	period := l.Period.Seconds()
	if l.Algorithm.HasBurst() && l.Requests > 0 {
		period *= float64(l.Burst) / float64(l.Requests)
	}
	for u := Second; u.Valid(); u++ {
		length := int64(units[u].length / time.Second)
		whole := int64(l.Requests) * length
		requests := whole / int64(l.Period/time.Second)
		cost := math.Abs(math.Log(float64(length) / period))
		if l.Requests > 0 {
			if requests == 0 || requests > math.MaxUint32 {
				continue
			}
			cost += math.Log(float64(whole) / float64(requests*int64(l.Period/time.Second)))
		}
		if cost < least {
			best, least = window{uint32(requests), u}, cost
		}
	}
	return best
}

// lets is how many w lets pass within a period that begins with a window.
func (w window) lets(period time.Duration) int64 {
	return int64(w.requests) * int64((period+w.period()-1)/w.period())
}

// atOnce is how many a limit lets pass within moments, at the most: a fixed window those of two.
func atOnce(l *limiter.Limit) int64 {
	switch {
	case l.Algorithm.HasBurst():
		return int64(l.Burst)
	case l.Algorithm == limiter.FixedWindow:
		return 2 * int64(l.Requests)
	}
	return int64(l.Requests)
}

// difference says what becomes of l as w, or "" if that is the same.
func (w window) difference(l *Limit) string {
	if l.Requests == 0 || l.Algorithm == limiter.FixedWindow && l.Period == w.period() {
		return ""
	}
	was, is := float64(l.Requests)/l.Period.Seconds(), float64(w.requests)/w.period().Seconds()
	lasting := "as many in the long run"
	if was != is {
		lasting = fmt.Sprintf("%.3g %% of it in the long run", 100*is/was)
	}
	return fmt.Sprintf("%s, %s, becomes %d per %s, fixed window: up to %d within moments rather than %d, %s",
		l.Words(), l.algorithmWords(), w.requests, w.unit, 2*int64(w.requests), atOnce(&l.Limit), lasting)
}

// keep chooses the limit of a list that, as the only one, lets the least too much pass of what the others would: by the
// worst of them. One that is tried out is kept only if all are.
func keep(limits []Limit) int {
	best, least := -1, math.Inf(1)
	for i := range limits {
		worst := 0.0
		for j := range limits {
			if i != j && !limits[j].Shadow {
				worst = max(worst, tooMuch(nearestWindow(&limits[i].Limit), &limits[j].Limit))
			}
		}
		if worst < least && !limits[i].Shadow {
			best, least = i, worst
		}
	}
	return max(best, 0)
}

// tooMuch is how many times of what l lets pass in its period w does.
func tooMuch(w window, l *limiter.Limit) float64 {
	return float64(w.lets(l.Period)) / float64(max(l.Requests, 1))
}
