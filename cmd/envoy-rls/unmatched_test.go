package main

import (
	"strings"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// TestNamesThatClientsChooseAreQuotedAndCut is about domains and keys with which a client would forge lines.
func TestNamesThatClientsChooseAreQuotedAndCut(t *testing.T) {
	service := startServices(t, 1)[0]
	client := ratelimit.NewRateLimitServiceClient(dial(t, service.GRPC))
	const forged = "\nlevel=ERROR msg=forged \x1b[31m"
	long := strings.Repeat("ü", 300)
	for _, domain := range []string{"x" + forged + long, "shop"} {
		_, err := client.ShouldRateLimit(t.Context(), &ratelimit.RateLimitRequest{Domain: domain, Descriptors: []*common.RateLimitDescriptor{{
			Entries: []*common.RateLimitDescriptor_Entry{{Key: "y" + forged + long, Value: "SECRET"}},
		}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	page, err := fetch("GET", "http://"+service.Admin+"/unmatched", nil)
	if err != nil {
		t.Fatal(err)
	}
	proctest.Eventually(t, "the log tells of both", func() bool { return strings.Count(service.Output(), "no rule matches") == 2 })
	for what, text := range map[string]string{"page": page, "log": service.Output()} {
		for line := range strings.SplitSeq(text, "\n") {
			if strings.HasPrefix(line, "level=ERROR") || strings.ContainsAny(line, "\x1b") || strings.Contains(line, "SECRET") || len(line) > 700 {
				t.Errorf("the %s has the line %q", what, line)
			}
		}
		if !strings.Contains(text, `forged`) || !strings.Contains(text, "…") {
			t.Errorf("the %s tells nothing of the names:\n%s", what, text)
		}
	}
}
