package rls_test

import (
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

const toOverride = `
domain: d
descriptors:
  - {key: user, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: probe, exempt: true}
`

// TestAnOverrideHoldsWhateverTheRequestBrings: the operator's word is the last.
func TestAnOverrideHoldsWhateverTheRequestBrings(t *testing.T) {
	for _, c := range []struct {
		kind   descriptors.OverrideKind
		brings uint32
		want   ratelimit.RateLimitResponse_Code
	}{
		{descriptors.OverrideDeny, 100, ratelimit.RateLimitResponse_OVER_LIMIT},
		{descriptors.OverrideUnlimited, 0, ratelimit.RateLimitResponse_OK},
		{descriptors.OverrideShadow, 0, ratelimit.RateLimitResponse_OK},
		{descriptors.OverrideLimit, 0, ratelimit.RateLimitResponse_OK},
	} {
		for _, compat := range []bool{false, true} {
			s := newService(t, toOverride, rls.Options{Compat: compat})
			with, problems := s.Rules().WithOverrides([]descriptors.Override{{
				ID: "x", Domain: "d", Rule: "d.user", Kind: c.kind, Requests: 9, Unit: descriptors.Hour, Multiplier: 1,
			}})
			if problems[0] != nil {
				t.Fatal(problems[0])
			}
			s.SetRules(with)
			d := descriptor("user=ann")
			d.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: c.brings, Unit: typev3.RateLimitUnit_HOUR}
			req := &ratelimit.RateLimitRequest{Domain: "d", HitsAddend: 3, Descriptors: []*common.RateLimitDescriptor{d}}
			if answer, err := s.ShouldRateLimit(t.Context(), req); err != nil || answer.GetOverallCode() != c.want {
				t.Errorf("compat %t: %s beside a limit of %d is answered by %v, %v", compat, c.kind, c.brings, answer, err)
			}
		}
	}
}

func TestADeniedRuleChargesNothingElse(t *testing.T) {
	s := newService(t, toOverride+"  - {key: tenant, rate_limit: {unit: hour, requests_per_unit: 5}}\n", rls.Options{})
	with, _ := s.Rules().WithOverrides([]descriptors.Override{{Domain: "d", Rule: "d.user", Kind: descriptors.OverrideDeny}})
	s.SetRules(with)
	ask := func(list ...string) *ratelimit.RateLimitResponse {
		req := &ratelimit.RateLimitRequest{Domain: "d"}
		for _, text := range list {
			req.Descriptors = append(req.Descriptors, descriptor(text))
		}
		answer, err := s.ShouldRateLimit(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	for range 10 {
		if ask("tenant=a", "user=ann").GetOverallCode() != ratelimit.RateLimitResponse_OVER_LIMIT {
			t.Error("it is not denied")
		}
	}
	if left := ask("tenant=a").GetStatuses()[0].GetLimitRemaining(); left != 4 {
		t.Errorf("%d are left", left)
	}
}
