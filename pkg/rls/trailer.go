package rls

import (
	"context"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// ExplainTrailer tells a client who has called AskForExplanation, in one value for each of the first descriptors in order,
// which rule matched: its path, else why there is none, in words.
const ExplainTrailer = "envoy-rls-explained-bin"

// explainField is a field of RateLimitRequest. Protobuf keeps its number from all messages, so that Envoy's will never have it.
// For a header, all headers of each request would be looked through.
const explainField = 19500

// AskForExplanation has a service that is an envoy-rls explain its answer in ExplainTrailer. Others don't mind.
func AskForExplanation(r *ratelimit.RateLimitRequest) {
	m := r.ProtoReflect()
	m.SetUnknown(protowire.AppendVarint(protowire.AppendTag(m.GetUnknown(), explainField, protowire.VarintType), 1))
}

// maxExplained bounds the descriptors of a request that are explained: words cost more than decisions.
const maxExplained = 8

// explain sends what ExplainTrailer promises. It can't fail the call, which has been decided.
func (c *call) explain(ctx context.Context) {
	words := make([]string, 0, 2*len(c.descriptors))
	for i := range c.descriptors[:min(len(c.descriptors), maxExplained)] {
		words = append(words, ExplainTrailer, c.explanation(&c.descriptors[i]))
	}
	_ = grpc.SetTrailer(ctx, metadata.Pairs(words...))
}

func (c *call) explanation(d *descriptor) string {
	switch {
	case d.rule != nil && d.rule.Role == limiter.Shadow:
		return d.rule.Path + by(d.rule) + "  shadow_mode: never refused" + c.wouldDeny(d)
	case d.rule != nil:
		if shown, ok := c.shown(d); ok {
			return shown.limit.Path + by(d.rule) + c.pardon(d)
		}
		return d.rule.Path + by(d.rule)
	case d.overridden:
		return "override"
	}
	return c.rules.Unmatched(c.request.domain, d.entries)
}

// by names the override in a rule's place, if there is one.
func by(r *descriptors.Rule) string {
	if r.Override == "" {
		return ""
	}
	return " by override " + r.Override
}

// pardon says that a limit that denies d refuses nothing, where that is so for all limits.
func (c *call) pardon(d *descriptor) string {
	if !c.service.options.Shadow || c.passes(d) {
		return ""
	}
	return "  all limits are only tried out: not refused"
}

// wouldDeny says whether a shadow rule is over its limit.
func (c *call) wouldDeny(d *descriptor) string {
	if c.passes(d) {
		return ""
	}
	return ", over its limit"
}
