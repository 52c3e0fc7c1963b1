package rls

import (
	"time"

	"google.golang.org/grpc/codes"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// Result is what became of one descriptor, in the words of the metrics.
type Result string

// The results.
const (
	ResultOK              Result = "ok"
	ResultNearLimit       Result = "near_limit" // it passed, and some of it beyond Options.NearRatio of the limit
	ResultOverLimit       Result = "over_limit"
	ResultShadowOverLimit Result = "shadow_over_limit"
	ResultUnlimited       Result = "unlimited"
	ResultReplaced        Result = "replaced"
	ResultExempt          Result = "exempt"
	ResultFailed          Result = "failed" // the store failed to decide it, and the call with it
)

// Decided is what became of one limit, or of a rule without one.
type Decided struct {
	// Path is the limit's, or the rule's; that of a limit that the request brought along, where it takes no rule's place,
	// is Domain and BroughtAlong.
	Domain, Path string
	// Descriptor is the index of the request's descriptor.
	Descriptor int
	// Values is Path with the values of the request in it, where the rule asks for them, or Options.Compat for a limit that
	// was brought along, else nil. It holds what a client chose, and is not kept: whoever needs it later copies it.
	Values *descriptors.MetricPath
	Result Result
	// Cost is what the request charged, or wanted to where it was denied, Over the part of it beyond the limit,
	// if it was denied, and Near the part between Options.NearRatio of the limit and the limit. A look and a
	// give-back have none.
	Cost, Over, Near int64
	// Remembered tells that it was denied from memory, without asking the store.
	Remembered bool
}

// BroughtAlong ends the path of limits that requests bring along.
const BroughtAlong = "._override"

// Answered is a call that has ended.
type Answered struct {
	Domain string
	// GRPC tells that it came over gRPC.
	GRPC bool
	// Code is OK if there was an answer.
	Code      codes.Code
	OverLimit bool
	// Shadowed tells that the answer was OK by Options.Shadow, and over limit otherwise.
	Shadowed bool
	Took     time.Duration
	// Granted is what the caller gave the call on its arrival, or 0 if it had no deadline.
	Granted time.Duration
	// Late tells that the caller had left by then: it never saw the answer.
	Late bool
}

// Unmatched is a descriptor for which there is neither a rule nor a limit of its own.
type Unmatched struct {
	// Domain is the domain of rules that it is in, or "", and Sent is what the request names, which a client chooses.
	Domain, Sent string
	// Entries are prepared as rules want them. They, and Sent, are good until the event returns: whoever keeps them
	// clones them.
	Entries []descriptors.Entry
	// At is when the call began.
	At time.Time
}

// Events are told what happens, for metrics and logs. Every function may be nil, is called on the request's
// own goroutine, many at once, and must return soon. A domain is "" where no rules name it: names that
// clients choose never become labels.
type Events struct {
	// Answered ends a call.
	Answered func(Answered)
	// Decided is told of each limit of a rule that was matched, of rules without one, and of limits that were brought along.
	Decided func(Decided)
	// Unmatched is told of each descriptor for which there is neither a rule nor a limit of its own.
	Unmatched func(Unmatched)
	// Empty is told of each descriptor without entries, which Unmatched is told of, too.
	Empty func(domain string)
	// BadOverride is told of each limit in a request that can't be used.
	BadOverride func(domain string)
	// Overflow is told of each descriptor that shares the counter of its rule's values that are too many.
	Overflow func(domain, path string)
	// Degraded is told of each hit that its failure policy answered for, and why the store didn't, in a word.
	Degraded func(domain string, policy limiter.FailurePolicy, reason string)
	// StoreFailed is told of each error of the store, and why it failed, in a word.
	StoreFailed func(err error, reason string)
	// Panicked is told of a fault in this program that failed a call over gRPC, and where it was.
	Panicked func(fault any, stack []byte)
}

// filled returns e with functions that do nothing in place of nil.
func (e Events) filled() Events {
	if e.Answered == nil {
		e.Answered = func(Answered) {}
	}
	if e.Decided == nil {
		e.Decided = func(Decided) {}
	}
	if e.Unmatched == nil {
		e.Unmatched = func(Unmatched) {}
	}
	if e.Empty == nil {
		e.Empty = func(string) {}
	}
	if e.BadOverride == nil {
		e.BadOverride = func(string) {}
	}
	if e.Overflow == nil {
		e.Overflow = func(string, string) {}
	}
	if e.Degraded == nil {
		e.Degraded = func(string, limiter.FailurePolicy, string) {}
	}
	if e.StoreFailed == nil {
		e.StoreFailed = func(error, string) {}
	}
	if e.Panicked == nil {
		e.Panicked = func(any, []byte) {}
	}
	return e
}
