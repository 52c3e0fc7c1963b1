// Package limiter is the domain of a rate limiter and nothing else: limits, hits, and the loop by which a
// store decides a batch of hits at one instant. It knows no clock, no store and no protocol, and it imports
// the standard library only.
package limiter

import (
	"fmt"
	"time"
)

// MaxPeriod is the longest period a limit may have: ten years of 365 days.
const MaxPeriod = 10 * 365 * 24 * time.Hour

// MaxCost is the largest cost of one hit, and the largest count a counter holds: the protocol's limits are
// 32 bit, so a larger cost can never be admitted and is as good as this one.
const MaxCost = 1<<32 - 1

// Limit says how many hits a counter admits. Two limits are equal if their fields are.
type Limit struct {
	Algorithm Algorithm
	// Requests is the number of hits admitted in a Period; 0 admits none.
	Requests uint32
	// Burst is the capacity of a bucket, at least 1 unless Requests is 0, and 0 for all other algorithms.
	Burst uint32
	// Period is in whole seconds, from one second to MaxPeriod.
	Period time.Duration
}

// Validate reports what makes l unusable, in words an operator can act on, or nil.
func (l Limit) Validate() error {
	switch {
	case int(l.Algorithm) >= len(kernels):
		return fmt.Errorf("unknown algorithm %d", l.Algorithm)
	case l.Period < time.Second || l.Period > MaxPeriod:
		return fmt.Errorf("a period of %s is outside 1 second to 10 years", l.Period)
	case l.Period%time.Second != 0:
		return fmt.Errorf("a period of %s is not whole seconds", l.Period)
	}
	return kernels[l.Algorithm].check(l)
}
