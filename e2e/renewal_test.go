package e2e

import (
	"fmt"
	"testing"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// TestNoCallFailsWhileConnectionsAreRenewed has connections of half a second, which Envoy is told to leave.
func TestNoCallFailsWhileConnectionsAreRenewed(t *testing.T) {
	t.Parallel() // it waits for connections to grow old
	s := exactService(t, inMemory, "--max-connection-age=500ms", rulesIn(t, map[string]string{
		"renewed": `- {key: all, value: "yes", rate_limit: {unit: year, requests_per_unit: 1000000}}`,
	}))
	g := startGateway(t, bootstrap{
		Listeners: []listener{{Name: "ingress", Service: "service", Deny: true}},
		Services:  []cluster{replicas("service", s)},
		Routes:    []route{{"renewed", limits(t, everybody)}},
	})
	r := request{listener: "ingress", path: "renewed"}
	l := g.load(r, 4)
	proctest.Eventually(t, "connections are renewed", func() bool {
		return g.stat(t, "cluster.service.upstream_cx_close_notify") >= 5 && g.stat(t, "cluster.service.upstream_cx_total") > 5
	})
	l.stop()
	for f := range l.failed {
		t.Errorf("a call failed: %s", f)
	}
	if n := l.refused.Load(); n > 0 {
		t.Errorf("%d calls were refused", n)
	}
	// Each call was counted once.
	left := fmt.Sprint(1000000 - l.passed.Load() - 1)
	g.answers(t, r, "200  x-ratelimit-remaining: "+left)
}
