package limiter

import "time"

// namedWindow counts in windows that are told by the counters' names, so that a new window is a new counter. B is the
// count, and nothing else is kept.
//
// The names are made elsewhere, by other clocks, so a window is counted in for a while before and after now is in it: no
// count ever begins anew under its name. Waits are those of the window that now is in.
var namedWindow = kernel{
	name:       fixedWindow.name,
	check:      checkNoBurst,
	roll:       func(counter) {},
	room:       roomFixedWindow,
	spend:      spendNamedWindow,
	resetAfter: resetNamedWindow,
	retryAfter: func(c counter, _ int64) time.Duration { return resetNamedWindow(c) },
	expires:    func(c counter) int64 { return c.now + micros(c.limit.Period) + micros(clocksDiffer) },
}

// clocksDiffer is for how long after its window's end a counter may still be asked for, by a clock that is late.
const clocksDiffer = 10 * time.Second

// spendNamedWindow leaves out what comes after its window, which would make a counter that nobody asks for. A give-back
// makes none.
func spendNamedWindow(c counter, n, at int64) bool {
	if period := micros(c.limit.Period); n > 0 && at != 0 && at/period != c.now/period {
		return false
	}
	return spendFixedWindow(c, n, 0)
}

func resetNamedWindow(c counter) time.Duration {
	period := micros(c.limit.Period)
	return duration(period - c.now%period)
}
