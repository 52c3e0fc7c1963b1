package e2e

import (
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// What Envoy Gateway makes of a BackendTrafficPolicy: a resource for its control plane, and a route's rate limits.
const (
	gatewayRoute    = "httproute/default/shop/rule/0/match/0/*_example_com"
	gatewayResource = `{"name": "default/eg/http", "domain": "default/eg/http", "descriptors": [
		{"key": "` + gatewayRoute + `", "value": "` + gatewayRoute + `", "descriptors": [
			{"key": "rule-0-match-0", "descriptors": [
				{"key": "masked_remote_address", "value": "0.0.0.0/0", "rate_limit": {"unit": "YEAR", "requests_per_unit": 2}}]}]}]}`
	gatewayLimits = `
- actions:
    - generic_key: {descriptor_key: "` + gatewayRoute + `", descriptor_value: "` + gatewayRoute + `"}
    - request_headers: {header_name: x-user-id, descriptor_key: rule-0-match-0}
    - masked_remote_address: {v4_prefix_mask_len: 0}`
)

// TestEnvoyGatewaysDeploymentServesALimitThroughEnvoy has all of the environment that Envoy Gateway gives the service, but
// for the places of files and ports, and two variables of ours: a machine of tests is slow, and has no other loopback.
func TestEnvoyGatewaysDeploymentServesALimitThroughEnvoy(t *testing.T) {
	a := proctest.NewAuthority(t)
	a.Sign("plane", func(c *x509.Certificate) { c.DNSNames = []string{"envoy-gateway"} })
	a.Sign("tls", func(c *x509.Certificate) { c.DNSNames = []string{"envoy-ratelimit"} })
	a.Sign("envoy")
	plane := proctest.StartControlPlane(t, a.MutualTLS("plane"))
	metrics := fmt.Sprint("127.0.0.1:", proctest.FreePort(t))
	program := filepath.Join(t.TempDir(), "ratelimit")
	if err := os.Symlink(proctest.Binary(t), program); err != nil {
		t.Fatal(err)
	}
	s := proctest.Launch(t, []string{
		"RUNTIME_ROOT=/data", "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_IGNOREDOTFILES=true", "RUNTIME_WATCH_ROOT=false",
		"LOG_LEVEL=info", "USE_STATSD=false", "CONFIG_TYPE=GRPC_XDS_SOTW",
		"CONFIG_GRPC_XDS_SERVER_URL=" + plane.Addr, "CONFIG_GRPC_XDS_NODE_ID=envoy-ratelimit",
		"GRPC_SERVER_USE_TLS=true", "GRPC_SERVER_TLS_CERT=" + a.File("tls.crt"), "GRPC_SERVER_TLS_KEY=" + a.File("tls.key"),
		"GRPC_SERVER_TLS_CA_CERT=" + a.File("ca.crt"), "CONFIG_GRPC_XDS_SERVER_USE_TLS=true",
		"CONFIG_GRPC_XDS_CLIENT_TLS_CERT=" + a.File("tls.crt"), "CONFIG_GRPC_XDS_CLIENT_TLS_KEY=" + a.File("tls.key"),
		"CONFIG_GRPC_XDS_SERVER_TLS_CACERT=" + a.File("ca.crt"), "CONFIG_GRPC_XDS_SERVER_TLS_SAN=envoy-gateway",
		"FORCE_START_WITHOUT_INITIAL_CONFIG=true", "REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + proctest.StartRedis(t).Addr,
		"USE_PROMETHEUS=true", "PROMETHEUS_ADDR=" + metrics, "PROMETHEUS_MAPPER_YAML=/etc/statsd-exporter/conf.yaml",
		"TRACING_ENABLED=true", "TRACING_SERVICE_NAME=envoy-ratelimit", "TRACING_SERVICE_NAMESPACE=envoy-gateway-system",
		"TRACING_SERVICE_INSTANCE_ID=pod-1", "TRACING_SAMPLING_RATE=1", "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1",
		"STORE_TIMEOUT=5s",
	}, program)
	proctest.Eventually(t, "the probe is content before there are rules", func() bool {
		code, _ := s.Get("/healthcheck")
		return code == http.StatusOK
	})
	plane.Set("envoy-ratelimit", "1", gatewayResource)
	plane.Acked("1")

	secured := replicas("rls", s)
	secured.TLS = &mutualTLS{a.File("envoy.crt"), a.File("envoy.key"), a.File("ca.crt")}
	g := startGateway(t, bootstrap{
		Listeners: []listener{{Name: "http", Service: "rls", Deny: true}},
		Services:  []cluster{secured},
		Routes:    []route{{Domain: "default/eg/http", Limits: limits(t, gatewayLimits)}},
	})
	for i, want := range []int{200, 200, 429} {
		if got := g.get(t, request{listener: "http", path: "default/eg/http", headers: []string{"x-user-id: ann"}}); got.status != want {
			t.Errorf("request %d is answered with %d, want %d", i+1, got.status, want)
		}
	}
	if got := g.get(t, request{listener: "http", path: "default/eg/http", headers: []string{"x-user-id: bob"}}).status; got != 200 {
		t.Errorf("another user is answered with %d", got)
	}
	series := `ratelimit_service_rate_limit_over_limit{domain="default/eg/http",key1="` + gatewayRoute + "_" + gatewayRoute + `",key2="rule-0-match-0"} 1`
	found := false
	for line := range lines(t, "http://"+metrics+"/metrics") {
		found = found || line == series
	}
	if !found {
		t.Errorf("the port for metrics lacks %s", series)
	}
	limit := "default/eg/http." + gatewayRoute + "_" + gatewayRoute + ".rule-0-match-0.masked_remote_address_0.0.0.0/0: unit=YEAR requests_per_unit=2"
	found = false
	for line := range lines(t, "http://"+s.Admin+"/rlconfig") {
		found = found || strings.HasPrefix(line, limit)
	}
	if !found {
		t.Errorf("/rlconfig lacks %s", limit)
	}
}
