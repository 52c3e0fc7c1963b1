package limiter

import (
	"fmt"
	"slices"
	"sort"
	"time"
)

// MaxLog is the highest limit that SlidingLog takes: a store keeps every hit of a period.
const MaxLog = 128

// slidingLog keeps the time of each hit of the last period in Log, the oldest first. It is exact: no period,
// wherever it begins, holds more than the limit.
//
// Hits that are charged although they were denied are kept up to twice the limit; more would change no
// verdict for a whole period.
var slidingLog = kernel{
	name:       "sliding_log",
	check:      checkSlidingLog,
	roll:       rollSlidingLog,
	room:       func(c counter) int64 { return int64(c.limit.Requests) - int64(len(c.row.Log)) },
	spend:      spendSlidingLog,
	resetAfter: func(c counter) time.Duration { return duration(expiresSlidingLog(c) - c.now) },
	retryAfter: retrySlidingLog,
	expires:    expiresSlidingLog,
}

func checkSlidingLog(l Limit) error {
	if l.Requests > MaxLog {
		return fmt.Errorf("sliding_log keeps every hit, and takes limits up to %d; write algorithm: sliding_window", MaxLog)
	}
	return checkNoBurst(l)
}

func rollSlidingLog(c counter) {
	edge := c.now - micros(c.limit.Period)
	first := sort.Search(len(c.row.Log), func(i int) bool { return c.row.Log[i] > edge })
	c.row.Log = c.row.Log[first:]
}

func spendSlidingLog(c counter, n, at int64) bool {
	before := len(c.row.Log)
	if n < 0 {
		c.row.Log = withoutHits(c.row.Log, -n, at)
	} else if at == 0 || at > c.now-micros(c.limit.Period) {
		c.row.Log = withHits(c, min(n, int64(2*c.limit.Requests)-int64(before)), at)
	}
	return len(c.row.Log) != before
}

// withHits adds n hits at an instant, or now if that is 0, but not before the last one: a log stays in order
// when the clock steps back.
func withHits(c counter, n, at int64) []int64 {
	log := c.row.Log
	if n <= 0 {
		return log
	}
	place := len(log)
	if at != 0 {
		place = sort.Search(len(log), func(i int) bool { return log[i] > at })
	} else if at = c.now; place > 0 {
		at = max(at, log[place-1])
	}
	return slices.Concat(log[:place], slices.Repeat([]int64{at}, int(n)), log[place:])
}

// withoutHits takes away the n latest hits, or of those at an instant, if that is not 0.
func withoutHits(log []int64, n, at int64) []int64 {
	end := len(log)
	if at != 0 {
		end = sort.Search(len(log), func(i int) bool { return log[i] > at })
	}
	first := end
	for first > 0 && n > 0 && (at == 0 || log[first-1] == at) {
		first--
		n--
	}
	return slices.Concat(log[:first], log[end:])
}

// retrySlidingLog: n hits fit once the hits that are too many have passed out of the period.
func retrySlidingLog(c counter, n int64) time.Duration {
	tooMany := int64(len(c.row.Log)) + n - int64(c.limit.Requests)
	switch {
	case len(c.row.Log) == 0:
		return c.limit.Period
	case tooMany <= 0:
		return 0
	}
	last := min(tooMany, int64(len(c.row.Log))) - 1
	return duration(c.row.Log[last] + micros(c.limit.Period) - c.now)
}

func expiresSlidingLog(c counter) int64 {
	if len(c.row.Log) == 0 {
		return c.now
	}
	return c.row.Log[len(c.row.Log)-1] + micros(c.limit.Period)
}
