package limiter

import (
	"fmt"
	"strings"
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
	// NamedWindow is FixedWindow for counters whose names tell their window, as those of envoyproxy/ratelimit do. Rule
	// files have no name of its own for it, and it has to come last.
	NamedWindow
)

// kernels has a line for each algorithm.
var kernels = [...]kernel{
	FixedWindow:   fixedWindow,
	SlidingWindow: slidingWindow,
	SlidingLog:    slidingLog,
	TokenBucket:   tokenBucket,
	LeakyBucket:   leakyBucket(),
	NamedWindow:   namedWindow,
}

// String is the algorithm's name in rule files, where a NamedWindow is a fixed window.
func (a Algorithm) String() string {
	if int(a) < len(kernels) {
		return kernels[a].name
	}
	return fmt.Sprintf("algorithm(%d)", uint8(a))
}

// HasBurst tells whether a limit of the algorithm has a Burst: whether it is a bucket.
func (a Algorithm) HasBurst() bool { return int(a) < len(kernels) && kernels[a].bucket }

// ParseAlgorithm is the inverse of Algorithm.String, but for NamedWindow. Its error lists the names there are.
func ParseAlgorithm(name string) (Algorithm, error) {
	for a := range NamedWindow {
		if name == kernels[a].name {
			return a, nil
		}
	}
	return 0, fmt.Errorf("unknown algorithm %q; there is %s", name, strings.Join(AlgorithmNames(), ", "))
}

// AlgorithmNames are the names that ParseAlgorithm knows.
func AlgorithmNames() []string {
	names := make([]string, NamedWindow)
	for i := range names {
		names[i] = kernels[i].name
	}
	return names
}
