package limiter

import "time"

// million is how many millionths of a hit, or of a window, are a whole one.
const million = 1_000_000

// slidingWindow estimates the hits of the last period: those of the present window, and of the one before
// the share that still lies within the period. A is the present window's index, B its count, C that of the
// one before.
//
// The share is in millionths, in whole milliseconds, rounded so that old hits weigh rather too much. All
// products stay below 2^53, for the twin in Lua.
var slidingWindow = kernel{
	name:       "sliding_window",
	check:      checkNoBurst,
	roll:       rollSlidingWindow,
	room:       roomSlidingWindow,
	spend:      spendSlidingWindow,
	resetAfter: func(c counter) time.Duration { return duration((c.row.A+1)*micros(c.limit.Period) - c.now) },
	retryAfter: retrySlidingWindow,
	expires:    func(c counter) int64 { return (c.row.A + 2) * micros(c.limit.Period) },
}

func rollSlidingWindow(c counter) {
	switch window := c.now / micros(c.limit.Period); {
	case window <= c.row.A:
	case window == c.row.A+1:
		c.row.A, c.row.B, c.row.C = window, 0, c.row.B
	default:
		c.row.A, c.row.B, c.row.C = window, 0, 0
	}
}

// elapsed is how much of the present window has passed, in millionths.
func elapsed(c counter) int64 {
	ms := max(c.now-c.row.A*micros(c.limit.Period), 0) / 1000
	period := c.limit.Period.Milliseconds()
	if period <= longPeriod {
		return ms * million / period
	}
	return ms / ceilDiv(period, million)
}

// longPeriod is the longest period, in ms, whose millionths of a ms stay below 2^53.
const longPeriod = 9_000_000_000

func roomSlidingWindow(c counter) int64 {
	used := c.row.C*(million-elapsed(c)) + c.row.B*million
	return floorDiv(int64(c.limit.Requests)*million-used, million)
}

func spendSlidingWindow(c counter, n, at int64) bool {
	window := c.row.A
	if at != 0 {
		window = at / micros(c.limit.Period)
	}
	count := &c.row.B
	switch window {
	case c.row.A:
	case c.row.A - 1:
		count = &c.row.C
	default:
		return false
	}
	before := *count
	*count = min(max(before+n, 0), MaxCost)
	return *count != before
}

// retrySlidingWindow finds the first share at which n fits: in this window if its own count leaves room for
// n, else in the next, where the present count is the one before.
func retrySlidingWindow(c counter, n int64) time.Duration {
	requests, window, before := int64(c.limit.Requests), c.row.A, c.row.C
	left := requests - c.row.B - n
	if left < 0 {
		window, before, left = window+1, c.row.B, requests-n
	}
	if left < 0 || before == 0 {
		return duration((c.row.A+1)*micros(c.limit.Period) - c.now)
	}
	share := max(million-left*million/before, 0)
	period := c.limit.Period.Milliseconds()
	ms := ceilDiv(share*period, million)
	if period > longPeriod {
		ms = share * ceilDiv(period, million)
	}
	// Shares are rounded, so that one may not be reached before the window ends, and all old hits with it.
	return duration(window*micros(c.limit.Period) + min(ms, period)*1000 - c.now)
}
