package main

import (
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

func TestAnAnswerIsReadFromAFullResponse(t *testing.T) {
	wire, err := proto.Marshal(&ratelimit.RateLimitResponse{
		OverallCode: ratelimit.RateLimitResponse_OVER_LIMIT,
		Statuses: []*ratelimit.RateLimitResponse_DescriptorStatus{
			{Code: ratelimit.RateLimitResponse_OK, LimitRemaining: 7},
			{Code: ratelimit.RateLimitResponse_OVER_LIMIT, DurationUntilReset: durationpb.New(3e9)},
			{},
		},
		ResponseHeadersToAdd: []*core.HeaderValue{{Key: "retry-after", Value: "3"}},
		RawBody:              []byte("slow down"),
	})
	if err != nil {
		t.Fatal(err)
	}
	got := answer{code: ratelimit.RateLimitResponse_OK, statuses: 9} // of an earlier response
	if err := got.decode(wire); err != nil || got != (answer{ratelimit.RateLimitResponse_OVER_LIMIT, 3}) {
		t.Errorf("answer %+v, error %v", got, err)
	}
	if err := got.decode(nil); err != nil || got != (answer{}) {
		t.Errorf("empty: answer %+v, error %v", got, err)
	}
	if err := got.decode(wire[:len(wire)-1]); err == nil {
		t.Error("cut short: no error")
	}
}
