package limiter

import (
	"errors"
	"fmt"
	"time"
)

// tokenBucket holds up to Burst tokens and gets Requests more in a Period, evenly. A is the instant up to
// which the row accounts for them, B how much is missing from a full bucket, in millionths of a token.
//
// A quantum is a millionth of the period: in each the bucket gets back Requests millionths of a token, which
// is exact for every whole number of requests. Time that is less than a quantum stays on account in A.
var tokenBucket = kernel{
	name:       "token_bucket",
	bucket:     true,
	check:      checkTokenBucket,
	roll:       rollTokenBucket,
	room:       roomTokenBucket,
	spend:      spendTokenBucket,
	resetAfter: func(c counter) time.Duration { return duration(max(expiresTokenBucket(c)-c.now, 0)) },
	retryAfter: retryTokenBucket,
	expires:    expiresTokenBucket,
}

func checkTokenBucket(l Limit) error {
	switch {
	case l.Requests == 0:
		return nil
	case l.Burst == 0:
		return errors.New("burst, the bucket's capacity, is at least 1")
	case int64(l.Burst)*int64(l.Period/time.Second) > int64(l.Requests)*int64(MaxPeriod/time.Second):
		return fmt.Errorf("at %d in %s a bucket of %d takes more than 10 years to fill; write a smaller burst",
			l.Requests, l.Period, l.Burst)
	}
	return nil
}

// quantum is in µs; periods are whole seconds.
func quantum(l *Limit) int64 { return micros(l.Period) / million }

// capacity is in millionths of a token. A limit of 0 admits nothing, whatever its burst.
func capacity(l *Limit) int64 {
	if l.Requests == 0 {
		return 0
	}
	return int64(l.Burst) * million
}

func rollTokenBucket(c counter) {
	requests, row := int64(c.limit.Requests), c.row
	steps := max(c.now-row.A, 0) / quantum(c.limit)
	switch {
	case row.B == 0 || requests == 0: // a limit of 0 gives nothing back, now or later, for the time until now
		row.A = max(c.now, row.A)
	case steps >= ceilDiv(row.B, requests):
		row.A, row.B = max(c.now, row.A), 0
	default:
		row.A += steps * quantum(c.limit)
		row.B -= steps * requests
	}
}

func roomTokenBucket(c counter) int64 {
	return floorDiv(capacity(c.limit)-c.row.B, million)
}

// spendTokenBucket lets what is missing grow to two bucketfuls, which is a debt of one: no single cost can
// lock a client out for longer than it takes to fill the bucket twice.
func spendTokenBucket(c counter, n, at int64) bool {
	amount := n * million
	if at != 0 {
		amount = afterLeak(c, amount, at)
	}
	before := c.row.B
	most := max(2*capacity(c.limit), before)
	c.row.B = min(max(before+amount, 0), most)
	if c.row.B == 0 {
		c.row.A = max(c.now, c.row.A) // as roll has it for a full bucket
	}
	return c.row.B != before
}

// afterLeak is what is left by now of an amount charged, or given back, at an earlier instant.
func afterLeak(c counter, amount, at int64) int64 {
	steps := max(c.now-at, 0) / quantum(c.limit)
	size := max(amount, -amount)
	requests := int64(c.limit.Requests)
	leaked := size
	if requests == 0 || steps < ceilDiv(size, requests) {
		leaked = steps * requests
	}
	if amount < 0 {
		return amount + leaked
	}
	return amount - leaked
}

// retryTokenBucket waits for n tokens, or for a full bucket if n is more than that. Where it is full, or never
// gets anything, a period is as good as any time.
func retryTokenBucket(c counter, n int64) time.Duration {
	most := capacity(c.limit)
	if c.limit.Requests == 0 || n*million > most && c.row.B == 0 && c.row.A <= c.now {
		return c.limit.Period
	}
	missing := max(c.row.B+min(n*million, most)-most, 0)
	return duration(max(c.row.A+timeFor(c.limit, missing)-c.now, 0))
}

// expiresTokenBucket is when the bucket is full; one that gets no tokens is given up after a period.
func expiresTokenBucket(c counter) int64 {
	if c.limit.Requests == 0 {
		return c.now + micros(c.limit.Period)
	}
	return c.row.A + timeFor(c.limit, c.row.B)
}

// longestWait bounds what a bucket that was filled under a larger limit would take to drain: twice MaxPeriod.
const longestWait = int64(2 * MaxPeriod / time.Microsecond)

// timeFor is how many µs it takes to get an amount of tokens.
func timeFor(l *Limit, amount int64) int64 {
	q := quantum(l)
	return min(ceilDiv(amount, int64(l.Requests)), longestWait/q) * q
}
