package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// TestAMirrorShowsEachCallToTheCandidate runs deploy/mirror.yaml over two services, of which the candidate refuses more.
func TestAMirrorShowsEachCallToTheCandidate(t *testing.T) {
	const calls = 10
	rules := "  - {key: user, rate_limit: {unit: year, unit_multiplier: 10, requests_per_unit: %d}}\n"
	inUse := exactService(t, rulesIn(t, map[string]string{"shop": fmt.Sprintf(rules, 7)}))
	candidate := exactService(t, rulesIn(t, map[string]string{"shop": fmt.Sprintf(rules, 3)}))
	bootstrap, err := os.ReadFile(filepath.Join(proctest.Root(), "deploy", "mirror.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	listens, admin := fmt.Sprint(proctest.FreePort(t)), proctest.FreePort(t)
	proctest.Envoy(t, strings.NewReplacer("port_value: 9901", fmt.Sprint("port_value: ", admin), "port_value: 8081", "port_value: "+listens,
		"port_value: 18081", "port_value: "+port(inUse.GRPC), "port_value: 28081", "port_value: "+port(candidate.GRPC)).Replace(string(bootstrap)), admin)
	conn, err := grpc.NewClient("127.0.0.1:"+listens, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // nothing depends on it
	ok := 0
	for range calls {
		answer, err := ratelimit.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), &ratelimit.RateLimitRequest{
			Domain:      "shop",
			Descriptors: []*common.RateLimitDescriptor{{Entries: []*common.RateLimitDescriptor_Entry{{Key: "user", Value: "ann"}}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if answer.GetOverallCode() == ratelimit.RateLimitResponse_OK {
			ok++
		}
	}
	if ok != 7 {
		t.Errorf("%d calls are OK, want the 7 of the service in use", ok)
	}
	proctest.Eventually(t, "the candidate has answered each call by its own rules", func() bool {
		return candidate.Metric("envoy_rls_requests_total", `code="ok"`) == 3 &&
			candidate.Metric("envoy_rls_requests_total", `code="over_limit"`) == calls-3
	})
}
