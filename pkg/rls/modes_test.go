package rls_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
	"github.com/envoy-rls/envoy-rls/pkg/redisstore"
	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

// TestShadowAnswersOKAndCountsAsWithoutIt has a request that one rule of two refuses: it costs nothing under the other,
// unless denied requests cost something.
func TestShadowAnswersOKAndCountsAsWithoutIt(t *testing.T) {
	for _, c := range []struct {
		name    string
		compat  bool
		wants   [3]string
		headers int
	}{
		{"natively clients are told nothing", false, [...]string{"OK: OK", "OK: OK, OVER_LIMIT", "OK: OVER_LIMIT"}, 0},
		{"in compat mode they are told of limits", true, [...]string{
			"OK: OK 1/3 49s", "OK: OK 0/3 49s, OVER_LIMIT 0/0 49s", "OK: OVER_LIMIT 0/3 49s",
		}, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			shadowed, over := 0, 0
			count := func(a rls.Answered) {
				if a.Shadowed {
					shadowed++
				}
				if a.OverLimit {
					over++
				}
			}
			o := rls.Options{Shadow: true, Compat: c.compat, Events: rls.Events{Answered: count}}
			o.Defaults.CountDenied = c.compat
			o.Headers = rls.HeaderOptions{Limit: "Limit", Remaining: "Remaining", Reset: "Reset", RetryAfter: "Retry-After", Rule: "Rule"}
			s := newService(t, rules, o)
			expect(t, s, request(costing(descriptor("three=x"), 2)), c.wants[0])
			expect(t, s, request(descriptor("three=x"), descriptor("none=x")), c.wants[1])
			expect(t, s, request(costing(descriptor("three=x"), 2)), c.wants[2])
			if got := headers(t, s, request(costing(descriptor("three=x"), 9))); len(got) != c.headers {
				t.Errorf("the headers are %v", got)
			}
			if shadowed != 3 || over != 0 {
				t.Errorf("%d answers were shadowed, and %d over limit", shadowed, over)
			}
		})
	}
}

func TestShadowAnswersOKForAStoreThatIsNotThere(t *testing.T) {
	store, err := redisstore.Open(redisstore.Options{Address: "127.0.0.1:1", Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	for policy, want := range map[limiter.FailurePolicy]string{limiter.FailError: "OK: OK", limiter.FailDeny: "OK: OVER_LIMIT"} {
		s := serviceOver(t, store, rules, rls.Options{Shadow: true, Defaults: descriptors.Defaults{OnStoreFailure: policy}})
		expect(t, s, request(descriptor("three=x")), want)
	}
}

func TestWithQuotaARequestIsRefusedOnlyByAllOfItsLimits(t *testing.T) {
	for _, compat := range []bool{false, true} {
		s := newService(t, rules, rls.Options{Quota: true, Compat: compat})
		for _, c := range []struct {
			list []string
			want string
		}{
			{[]string{"none=x"}, "OVER_LIMIT: OVER_LIMIT 0/0 49s"},
			{[]string{"none=x", "long=x"}, "OK: OVER_LIMIT 0/0 49s, OK 4/5"},
			// Only limits are quotas.
			{[]string{"none=x", "other=x"}, "OVER_LIMIT: OVER_LIMIT 0/0 49s, OK"},
			{[]string{"none=x", "known=x"}, "OVER_LIMIT: OVER_LIMIT 0/0 49s, OK"},
			{[]string{"none=x", "free=x"}, "OVER_LIMIT: OVER_LIMIT 0/0 49s, OK 4294967295"},
		} {
			req := request()
			for _, d := range c.list {
				req.Descriptors = append(req.Descriptors, descriptor(d))
			}
			got := ask(t, s, req)
			if len(got) < len(c.want) || got[:len(c.want)] != c.want {
				t.Errorf("compat %t: %q are answered by %q, want %q", compat, c.list, got, c.want)
			}
		}
		brought := limited(descriptor("other=x"), 0, typev3.RateLimitUnit_MINUTE)
		expect(t, s, request(brought, descriptor("three=x")), "OK: OVER_LIMIT 0/0 49s, OK 2/3 49s")
	}
}

func TestWithQuotaAShadowRuleStillDecidesNothing(t *testing.T) {
	s := newService(t, rules, rls.Options{Quota: true})
	expect(t, s, request(descriptor("none=x"), descriptor("shadow=x")), "OVER_LIMIT: OVER_LIMIT 0/0 49s, OK")
}

func TestEventsTellWhichDescriptorALimitIsOf(t *testing.T) {
	var told []string
	s := newService(t, `
domain: d
descriptors:
  - {key: free, rate_limit: {unlimited: true}}
  - key: user
    rate_limits:
      - {unit: day, requests_per_unit: 5}
      - {unit: hour, requests_per_unit: 5}
`, rls.Options{Events: rls.Events{Decided: func(d rls.Decided) { told = append(told, fmt.Sprint(d.Descriptor, " ", d.Path)) }}})
	expect(t, s, request(descriptor("stranger=x"), descriptor("user=ann"), descriptor("free=1")),
		"OK: OK, OK 4/5 13h59m49s, OK 4294967295")
	want := []string{"1 d.user/5-per-day", "1 d.user/5-per-hour", "2 d.free"}
	if !slices.Equal(told, want) {
		t.Errorf("it is told of %q, want %q", told, want)
	}
}
