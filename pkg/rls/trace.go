package rls

import (
	"google.golang.org/grpc/codes"

	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// Traced is what Options.Trace is told of a call that has ended. Nothing of it is a text that a client chose.
type Traced struct {
	// Domain is "" where no rules name it.
	Domain string
	// Descriptors is how many the request has.
	Descriptors int
	// Code is OK if there was an answer, and Internal after a fault in this program.
	Code      codes.Code
	OverLimit bool
	// DeniedBy is the path of the limit that refused, override if the request brought it, or "".
	DeniedBy string
	// Policies are the failure policies that answered for hits, or nil.
	Policies []limiter.FailurePolicy
	// StoreFailure is why the store failed, in a word, or "".
	StoreFailure string
}

func (c *call) traced(ended *Answered) Traced {
	t := Traced{
		Domain: ended.Domain, Descriptors: len(c.request.descriptors), Code: ended.Code, OverLimit: ended.OverLimit,
		StoreFailure: c.storeFailure, Policies: c.policies(),
	}
	if !t.OverLimit {
		return t
	}
	switch d, shown := c.strictest(); {
	case d == nil:
	case d.rule == nil:
		t.DeniedBy = "override"
	default:
		t.DeniedBy = shown.limit.Path
	}
	return t
}
