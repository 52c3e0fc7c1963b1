package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/metadata"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// TestTheDecisionLogNamesTheTraceAndTheOutage is about calls whose caller has a trace, with tracing off, before and after
// Redis has gone.
func TestTheDecisionLogNamesTheTraceAndTheOutage(t *testing.T) {
	redis, file := proctest.StartRedis(t), filepath.Join(t.TempDir(), "calls.log")
	s := proctest.StartService(t, "--rules="+writeRules(t), "--redis="+redis.URL(), "--decision-log=all", "--decision-log-to="+file,
		"--store-timeout=5s")
	client := ratelimit.NewRateLimitServiceClient(dial(t, s.GRPC))
	ask := func(n int) map[string]any {
		ctx := metadata.AppendToOutgoingContext(context.Background(), traceParent(n, false)...)
		if _, err := client.ShouldRateLimit(ctx, shopRequest("user")); err != nil {
			t.Fatal(err)
		}
		return lineOf(t, file, traceNumber(n))
	}
	line := ask(1)
	if line["code"] != "OK" || line["rule"] != "shop.user" || line["remaining"] != 999.0 || line["degraded"] != nil || line["reason"] != nil {
		t.Errorf("with Redis: %v", line)
	}
	redis.Kill()
	line = ask(2)
	if line["code"] != "OK" || line["rule"] != "shop.user" || line["degraded"] != "local" || line["reason"] == nil {
		t.Errorf("without Redis: %v", line)
	}
}

// lineOf is the line of a trace, once it is written.
func lineOf(t *testing.T, file, trace string) (fields map[string]any) {
	t.Helper()
	proctest.Eventually(t, "there is a line of trace "+trace, func() bool {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if strings.HasSuffix(line, "\n") && strings.Contains(line, `"trace_id":"`+trace+`"`) {
				return json.Unmarshal([]byte(line), &fields) == nil
			}
		}
		return false
	})
	return fields
}
