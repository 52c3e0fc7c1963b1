package rls_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

func rulesFor(t *testing.T, requests int) *descriptors.Ruleset {
	t.Helper()
	rs, problems := descriptors.Compile([]descriptors.File{{Name: "r.yaml", Data: fmt.Appendf(nil, `
domain: d
descriptors:
  - {key: user, rate_limit: {unit: day, requests_per_unit: %d}}
  - {key: path, value: "/%d*", rate_limit: {unit: day, requests_per_unit: 1}}
`, requests, requests)}}, descriptors.Options{})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return rs
}

func TestACountSurvivesAReloadAndARaisedLimitActsAtOnce(t *testing.T) {
	s := newService(t, "domain: d", rls.Options{})
	user := request(descriptor("user=ann"))
	s.SetRules(rulesFor(t, 2))
	for _, want := range []string{"OK: OK 1/2 13h59m49s", "OK: OK 0/2 13h59m49s", "OVER_LIMIT: OVER_LIMIT 0/2 13h59m49s"} {
		expect(t, s, user, want)
	}
	s.SetRules(rulesFor(t, 3))
	expect(t, s, user, "OK: OK 0/3 13h59m49s")
	s.SetRules(rulesFor(t, 1))
	expect(t, s, user, "OVER_LIMIT: OVER_LIMIT 0/1 13h59m49s")
}

func TestNoRequestFailsWhileRulesAreReloaded(t *testing.T) {
	s := newService(t, "domain: d", rls.Options{DynamicMetadata: true})
	sets := []*descriptors.Ruleset{rulesFor(t, 1), rulesFor(t, 1_000_000), rulesFor(t, 5)}
	s.SetRules(sets[0])
	var asking atomic.Int64
	var workers sync.WaitGroup
	for worker := range 8 {
		asking.Add(1)
		workers.Go(func() {
			defer asking.Add(-1)
			req := request(descriptor(fmt.Sprint("user=", worker)), descriptor("path=/1x"), descriptor("other=x"))
			for range 2000 {
				answer, err := s.ShouldRateLimit(context.Background(), req)
				if err != nil || len(answer.GetStatuses()) != 3 || answer.GetStatuses()[2].GetCode() != ratelimit.RateLimitResponse_OK {
					t.Errorf("%v, %v", answer, err)
				}
			}
		})
	}
	for i := 0; asking.Load() > 0; i++ {
		s.SetRules(sets[i%len(sets)])
	}
	workers.Wait()
}
