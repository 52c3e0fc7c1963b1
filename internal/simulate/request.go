// Package simulate asks rate limit rules, in virtual time, what they would say to traffic: that of a log, or made up. The
// requests are answered by the service itself, over counters in memory, so that no verdict is other than in
// production; only the clock is another one.
package simulate

import (
	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
)

// Request is what a proxy asks, and when.
type Request struct {
	// At is in µs since the Unix epoch.
	At int64
	// Descriptors are each a list of entries.
	Descriptors [][]descriptors.Entry
	// Costs tells that each descriptor costs Cost, where it otherwise costs 1.
	Costs bool
	Cost  uint64
}

// Traffic is requests, in order of their instants.
type Traffic interface {
	// Each calls yield for each request, which owns it, until yield returns false.
	Each(yield func(*Request) bool) error
}
