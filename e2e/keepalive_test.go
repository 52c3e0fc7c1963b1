package e2e

import (
	"testing"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// What ends an idle connection makes the next call wait for a new one, longer perhaps than Envoy's timeout.
func TestAnIdleEnvoyMayPingEverySecond(t *testing.T) {
	t.Parallel() // it waits for pings
	s := exactService(t, inMemory, rulesIn(t, map[string]string{
		"idle": `- {key: all, value: "yes", rate_limit: {unit: day, requests_per_unit: 100}}`,
	}))
	service := replicas("service", s)
	service.PingEvery = "1s"
	g := startGateway(t, bootstrap{
		Listeners: []listener{{Name: "ingress", Service: "service", Deny: true}},
		Services:  []cluster{service},
		Routes:    []route{{"idle", limits(t, everybody)}},
	})
	r := request{listener: "ingress", path: "idle"}
	g.answers(t, r, "200")

	const pings, frame = 12, 17 // a PING frame and its answer have 17 bytes
	before := g.stat(t, "cluster.service.upstream_cx_rx_bytes_total")
	proctest.Eventually(t, "Envoy's pings are answered", func() bool {
		answered := (g.stat(t, "cluster.service.upstream_cx_rx_bytes_total") - before) / frame
		return answered >= pings || g.stat(t, "cluster.service.upstream_cx_close_notify") > 0
	})
	g.answers(t, r, "200")
	for name, want := range map[string]int{"upstream_cx_close_notify": 0, "upstream_cx_total": 1} {
		if got := g.stat(t, "cluster.service."+name); got != want {
			t.Errorf("%s is %d, not %d: the service has closed the connection", name, got, want)
		}
	}
}
