package e2e

import (
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// What Envoy Gateway makes of a BackendTrafficPolicy: a resource for its control plane, and a route's rate limits. One rule is for
// users from anywhere, one for a network, and one for all but a network.
const (
	gatewayRoute    = "httproute/default/shop/rule/0/match/0/*_example_com"
	gatewayResource = `{"name": "default/eg/http", "domain": "default/eg/http", "descriptors": [
		{"key": "` + gatewayRoute + `", "value": "` + gatewayRoute + `", "descriptors": [
			{"key": "rule-0-match-0", "descriptors": [
				{"key": "masked_remote_address", "value": "0.0.0.0/0", "rate_limit": {"unit": "YEAR", "requests_per_unit": 2}}]},
			{"key": "masked_remote_address", "value": "192.0.2.0/24", "rate_limit": {"unit": "YEAR", "requests_per_unit": 1}},
			{"key": "masked_remote_address", "value": "invert:198.51.100.0/24", "rate_limit": {"unit": "YEAR", "requests_per_unit": 3}}]}]}`
	gatewayLimits = `
- actions:
    - &route {generic_key: {descriptor_key: "` + gatewayRoute + `", descriptor_value: "` + gatewayRoute + `"}}
    - request_headers: {header_name: x-user-id, descriptor_key: rule-0-match-0}
    - masked_remote_address: {v4_prefix_mask_len: 0}
- actions:
    - *route
    - masked_remote_address: {v4_prefix_mask_len: 24}
- actions:
    - *route
    - remote_address_match:
        descriptor_key: masked_remote_address
        descriptor_value: invert:198.51.100.0/24
        address_matcher: {invert_match: true, ranges: [{address_prefix: 198.51.100.0, prefix_len: 24}]}`
)

// TestEnvoyGatewaysDeploymentServesALimitThroughEnvoy has all of the environment that Envoy Gateway gives the service, but
// for the places of files and ports, and four variables of ours: a machine of tests is slow, has no other loopback, no name for
// the control plane, and no authority of its own.
func TestEnvoyGatewaysDeploymentServesALimitThroughEnvoy(t *testing.T) {
	a := proctest.NewAuthority(t)
	a.Sign("plane", func(c *x509.Certificate) { c.DNSNames = []string{"envoy-gateway"} })
	a.Sign("tls", func(c *x509.Certificate) { c.DNSNames = []string{"envoy-ratelimit"} })
	a.Sign("envoy")
	a.Sign("redis")
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
		"FORCE_START_WITHOUT_INITIAL_CONFIG=true", "REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + redisByTLS(t, a),
		"REDIS_TLS=true", "REDIS_TLS_CLIENT_CERT=" + a.File("tls.crt"), "REDIS_TLS_CLIENT_KEY=" + a.File("tls.key"), "SSL_CERT_FILE=" + a.File("ca.crt"),
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
	for i, c := range []struct {
		user, from string
		want       int
	}{
		{"ann", "198.51.100.1", 200}, {"ann", "198.51.100.2", 200}, {"ann", "198.51.100.3", 429},
		{"bob", "192.0.2.1", 200}, {"cyd", "192.0.2.2", 429}, // both count outside 198.51.100.0/24, too
		{"dan", "203.0.113.1", 200}, {"eve", "203.0.113.2", 429},
		{"fay", "198.51.100.1", 200},
	} {
		r := request{listener: "http", path: "default/eg/http", headers: []string{"x-user-id: " + c.user, "x-forwarded-for: " + c.from}}
		if got := g.get(t, r); got.status != c.want {
			t.Errorf("request %d, of %s from %s, is answered with %d, want %d", i+1, c.user, c.from, got.status, c.want)
		}
	}
	const refused = `ratelimit_service_rate_limit_over_limit{domain="default/eg/http",key1="` + gatewayRoute + "_" + gatewayRoute + `",key2="`
	shows(t, "http://"+metrics+"/metrics", refused+`rule-0-match-0"} 1`, refused+`masked_remote_address_192_0_2_0/24"} 1`,
		refused+`masked_remote_address_invert_198_51_100_0/24"} 1`)
	const limit = "default/eg/http." + gatewayRoute + "_" + gatewayRoute + "."
	shows(t, "http://"+s.Admin+"/rlconfig", limit+"rule-0-match-0.masked_remote_address_0.0.0.0/0: unit=YEAR requests_per_unit=2",
		limit+"masked_remote_address_invert:198.51.100.0/24: unit=YEAR requests_per_unit=3")
}

// redisByTLS starts a Redis that wants TLS with certificates of the authority, and returns its address.
func redisByTLS(t *testing.T, a *proctest.Authority) string {
	t.Helper()
	port := proctest.FreePort(t)
	proctest.StartRedis(t, "--tls-port", fmt.Sprint(port), "--tls-cert-file", a.File("redis.crt"), "--tls-key-file", a.File("redis.key"),
		"--tls-ca-cert-file", a.File("ca.crt"))
	return fmt.Sprint("127.0.0.1:", port)
}

// shows expects a page to have lines that begin so.
func shows(t *testing.T, url string, beginnings ...string) {
	t.Helper()
	page := slices.Collect(lines(t, url))
	for _, b := range beginnings {
		if !slices.ContainsFunc(page, func(line string) bool { return strings.HasPrefix(line, b) }) {
			t.Errorf("%s lacks %s", url, b)
		}
	}
}
