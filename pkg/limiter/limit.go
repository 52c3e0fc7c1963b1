// Package limiter is the domain of a rate limiter and nothing else: limits, hits, and the loop by which a
// store decides a batch of hits at one instant. It knows no clock, no store and no protocol, and it imports
// the standard library only.
package limiter

import (
	"fmt"
	"strings"
	"time"
)

// Algorithm says how a counter fills and empties. The zero value is FixedWindow. Its numbers are part of what
// stores send and keep.
type Algorithm uint8

// The algorithms. docs/algorithms.md compares them.
const (
	// FixedWindow counts in windows aligned to the Unix epoch.
	FixedWindow Algorithm = iota
	// SlidingWindow estimates the last period from two such windows, the earlier one by its share.
	SlidingWindow
	// SlidingLog remembers the time of every hit, for small limits.
	SlidingLog
	// TokenBucket holds Burst tokens and gets Requests more in a Period.
	TokenBucket
	// LeakyBucket is the same bucket seen from the other side, as a meter: it holds Burst hits and leaks
	// Requests in a Period.
	LeakyBucket
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

// String is the algorithm's name in rule files.
func (a Algorithm) String() string {
	if int(a) < len(kernels) {
		return kernels[a].name
	}
	return fmt.Sprintf("algorithm(%d)", uint8(a))
}

// HasBurst tells whether a limit of the algorithm has a Burst: whether it is a bucket.
func (a Algorithm) HasBurst() bool { return a == TokenBucket || a == LeakyBucket }

// ParseAlgorithm is the inverse of Algorithm.String. Its error lists the names there are.
func ParseAlgorithm(name string) (Algorithm, error) {
	for i := range kernels {
		if name == kernels[i].name {
			return Algorithm(i), nil
		}
	}
	return 0, fmt.Errorf("unknown algorithm %q; there is %s", name, strings.Join(AlgorithmNames(), ", "))
}

// AlgorithmNames are the names that ParseAlgorithm knows.
func AlgorithmNames() []string {
	names := make([]string, len(kernels))
	for i := range kernels {
		names[i] = kernels[i].name
	}
	return names
}
