package limiter

import (
	"fmt"
	"time"
)

// fixedWindow counts in windows aligned to the Unix epoch. A is the window's index, B the count.
//
// A window that lies ahead of now stays in force, so that a clock that steps back opens no second one. Twice
// the limit can pass around a window's edge.
var fixedWindow = kernel{
	name:       "fixed_window",
	check:      checkNoBurst,
	roll:       rollFixedWindow,
	room:       roomFixedWindow,
	spend:      spendFixedWindow,
	resetAfter: resetFixedWindow,
	retryAfter: func(c counter, _ int64) time.Duration { return resetFixedWindow(c) },
	expires:    func(c counter) int64 { return (c.row.A + 1) * micros(c.limit.Period) },
}

// checkNoBurst is for algorithms without a bucket.
func checkNoBurst(l Limit) error {
	if l.Burst != 0 {
		return fmt.Errorf("burst is the capacity of a bucket, and %s has none; write algorithm: token_bucket", l.Algorithm)
	}
	return nil
}

func rollFixedWindow(c counter) {
	if window := c.now / micros(c.limit.Period); window > c.row.A {
		c.row.A, c.row.B = window, 0
	}
}

func roomFixedWindow(c counter) int64 {
	return int64(c.limit.Requests) - c.row.B
}

func spendFixedWindow(c counter, n, at int64) bool {
	if at != 0 && at/micros(c.limit.Period) != c.row.A {
		return false
	}
	before := c.row.B
	c.row.B = min(max(before+n, 0), MaxCost)
	return c.row.B != before
}

func resetFixedWindow(c counter) time.Duration {
	return duration((c.row.A+1)*micros(c.limit.Period) - c.now)
}
