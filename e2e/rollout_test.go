package e2e

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// lost are Envoy's statistics of calls that found no replica, or whose replica went before it had answered.
var lost = []string{
	"upstream_rq_pending_failure_eject", "upstream_cx_destroy_with_active_rq", "upstream_cx_none_healthy", "lb_healthy_panic",
}

// TestARollingUpdateFailsNoCallAndCountsEach replaces three replicas one after the other, each by one on the same port,
// while Envoy grants a call 20 ms and refuses requests whose call fails. For a few calls of a busy machine that is not
// enough, which has nothing to do with the update.
func TestARollingUpdateFailsNoCallAndCountsEach(t *testing.T) {
	t.Parallel() // it waits for the delays
	const limit = 9000
	// Envoy hears of it within 0.2 s, and tells its workers once a second. It may stand still for a while.
	const drain = "--drain-delay=5s"
	redis := proctest.StartRedis(t)
	rules := rulesIn(t, map[string]string{"update": fmt.Sprintf(
		`- {key: all, value: "yes", on_store_failure: error, rate_limit: {unit: year, unit_multiplier: 10, requests_per_unit: %d}}`, limit)})
	var fleet []*proctest.Service
	for range 3 {
		fleet = append(fleet, proctest.StartService(t, "--redis="+redis.URL(), rules, "--store-timeout=5s", drain))
	}
	service := replicas("service", fleet...)
	service.CheckEvery = "0.2s"
	g := startGateway(t, bootstrap{
		Listeners: []listener{{Name: "ingress", Service: "service", Timeout: "0.02s", Deny: true}},
		Services:  []cluster{service},
		Routes:    []route{{"update", limits(t, everybody)}},
	})
	l := g.load(request{listener: "ingress", path: "update"}, 5)
	for _, s := range fleet {
		g.awaitCallsOf(t, s)
		s.Signal(syscall.SIGTERM)
		if code := s.Wait(); code != 0 {
			t.Errorf("after SIGTERM the exit code is %d", code)
		}
		s.Restart()
		g.awaitCallsOf(t, s)
	}
	proctest.Eventually(t, "the limit is used up", func() bool { return l.refused.Load() > 200 })
	l.stop()

	passed, refused, others := l.passed.Load(), l.refused.Load(), l.others.Load()
	t.Logf("%d passed, %d were refused, %d failed", passed, refused, others)
	for _, name := range lost {
		if n := g.stat(t, "cluster.service."+name); n > 0 {
			t.Errorf("Envoy has counted %d of %s", n, name)
		}
	}
	// Others are told by the replica that the time is up, just before Envoy finds out.
	late, few := int64(g.stat(t, "cluster.service.upstream_rq_timeout")), (passed+refused)/20
	if others > late+few || late > 4*few {
		t.Errorf("%d failed, of which %d for lack of time; few are %d", others, late, few)
		for f := range l.failed {
			t.Errorf("a call failed: %s", f)
		}
	}
	if passed > limit || passed < limit-others {
		t.Errorf("%d requests have passed of %d, and %d failed", passed, limit, others)
	}
}

// awaitCallsOf waits until a replica answers calls of Envoy.
func (g *gateway) awaitCallsOf(t *testing.T, s *proctest.Service) {
	t.Helper()
	proctest.Eventually(t, "the replica listens", func() bool {
		a, err := get("http://"+s.HTTP+"/readyz", nil)
		return err == nil && a.status == 200
	})
	proctest.Eventually(t, "it is called", func() bool { return s.Metric("envoy_rls_requests_total") > 20 })
}
