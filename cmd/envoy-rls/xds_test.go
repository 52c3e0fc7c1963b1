package main

import (
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/status"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// gatewayCaller asks a service what Envoy would ask.
type gatewayCaller struct {
	*testing.T
	*proctest.Service
	client ratelimit.RateLimitServiceClient
	domain string
}

func newGatewayCaller(t *testing.T, s *proctest.Service, domain string) *gatewayCaller {
	t.Helper()
	return &gatewayCaller{t, s, ratelimit.NewRateLimitServiceClient(dial(t, s.GRPC)), domain}
}

// ask sends descriptors, each as key=value|key=value, and returns the answer's code, or the error.
func (a *gatewayCaller) ask(descriptors ...string) string {
	a.Helper()
	r := &ratelimit.RateLimitRequest{Domain: a.domain}
	for _, text := range descriptors {
		d := &common.RateLimitDescriptor{}
		for _, entry := range strings.Split(text, "|") {
			k, v, _ := strings.Cut(entry, "=")
			d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: k, Value: v})
		}
		r.Descriptors = append(r.Descriptors, d)
	}
	answer, err := a.client.ShouldRateLimit(a.Context(), r)
	if err != nil {
		return status.Convert(err).Message()
	}
	return answer.GetOverallCode().String()
}

// admits asks until it is refused, which must be after so many.
func (a *gatewayCaller) admits(want int, descriptors ...string) {
	a.Helper()
	n := 0
	for n <= want && a.ask(descriptors...) == "OK" {
		n++
	}
	if n != want {
		a.Errorf("%v was admitted %d times, want %d", descriptors, n, want)
	}
}

// tells waits until the log or a page says something.
func tells(s *proctest.Service, t *testing.T, parts ...string) {
	t.Helper()
	proctest.Eventually(t, fmt.Sprintf("the log says %q", parts), func() bool {
		for line := range strings.SplitSeq(s.Output(), "\n") {
			if proctest.ContainsAll(line, parts...) {
				return true
			}
		}
		return false
	})
}

// becomes waits until a page has a status and, in its body, all the parts.
func (a *gatewayCaller) becomes(path string, code int, parts ...string) {
	a.Helper()
	proctest.Eventually(a.T, fmt.Sprintf("%s is %d with %q", path, code, parts), func() bool {
		got, body := a.Get(path)
		return got == code && proctest.ContainsAll(body, parts...)
	})
}

func (a *gatewayCaller) hasMetric(want float64, name string, labels ...string) {
	a.Helper()
	proctest.Eventually(a.T, fmt.Sprintf("%s%q is %g", name, labels, want), func() bool { return a.Metric(name, labels...) == want })
}

// gatewayFile is one of the resources that gateways send.
func gatewayFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(proctest.Root(), "pkg/xds/testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// envoyGateway is Envoy Gateway's environment, but for TLS and for Redis; e2e has all of it.
func envoyGateway(plane *proctest.ControlPlane) []string {
	return []string{
		"RUNTIME_ROOT=/data", "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_IGNOREDOTFILES=true", "RUNTIME_WATCH_ROOT=false",
		"LOG_LEVEL=info", "USE_STATSD=false", "CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL=" + plane.Addr,
		"CONFIG_GRPC_XDS_NODE_ID=envoy-ratelimit", "FORCE_START_WITHOUT_INITIAL_CONFIG=true", "REDIS_SOCKET_TYPE=tcp",
	}
}

const (
	gatewayDomain = "default/eg/http"
	wideRoute     = "httproute/default/shop/rule/0/match/0/*_example_com"
	gatewayRule   = wideRoute + "=" + wideRoute + "|rule-0-match-0=rule-0-match-0|rule-0-method=rule-0-method|rule-0-path=rule-0-path"
	exactRoute    = "httproute/default/shop/rule/1/match/0/www_example_com"
	gatewayNet    = exactRoute + "=" + exactRoute + "|masked_remote_address="
)

func TestInEnvoyGatewaysEnvironmentItsRulesAreServed(t *testing.T) {
	a := proctest.NewAuthority(t)
	a.Sign("server", func(c *x509.Certificate) { c.DNSNames = []string{"envoy-gateway"} })
	a.Sign("client")
	plane := proctest.StartControlPlane(t, a.MutualTLS("server"))
	redis := proctest.StartRedis(t)
	s := proctest.LaunchService(t, append(envoyGateway(plane), "REDIS_URL="+redis.Addr, "STORE_TIMEOUT=5s", "CONFIG_GRPC_XDS_SERVER_USE_TLS=true",
		"CONFIG_GRPC_XDS_CLIENT_TLS_CERT="+a.File("client.crt"), "CONFIG_GRPC_XDS_CLIENT_TLS_KEY="+a.File("client.key"),
		"CONFIG_GRPC_XDS_SERVER_TLS_CACERT="+a.File("ca.crt"), "CONFIG_GRPC_XDS_SERVER_TLS_SAN=envoy-gateway",
	), "--compat=envoyproxy-ratelimit")
	c := newGatewayCaller(t, s, gatewayDomain)

	// Before the first rules it is well, and says what it waits for.
	c.becomes("/healthcheck", http.StatusOK)
	c.becomes("/readyz", http.StatusServiceUnavailable, "no rules are loaded yet")
	if got := c.ask(gatewayRule); got != "no rate limit configuration loaded" {
		t.Errorf("without rules a call ends in %q", got)
	}
	plane.Set("envoy-ratelimit", "1", gatewayFile(t, "envoy-gateway.json"), gatewayFile(t, "envoy-gateway-shared.json"))
	plane.Acked("1")
	c.becomes("/readyz", http.StatusOK)
	tells(s, t, "rules loaded", "version=1", "resources=2", "domains=2", "warnings=0")
	c.admits(3, gatewayRule)
	c.admits(5, gatewayNet+"192.0.2.0/24")
	c.admits(9, gatewayNet+"invert:198.51.100.0/24")
	if got := c.ask(gatewayNet+"0.0.0.0/0|remote_address=192.0.2.1", gatewayNet+"invert:192.0.2.0/24"); got != "OK" {
		t.Errorf("another network is %s", got)
	}
	c.hasMetric(1, "envoy_rls_config_info", `source="xds"`)
	c.hasMetric(1, "envoy_rls_control_plane_up")

	// A set that can't be used is refused as a whole.
	plane.Set("envoy-ratelimit", "2", proctest.Resource("other", 1),
		`{"name": "default/eg/http", "domain": "default/eg/http", "descriptors": [{"key": "a", "rate_limit": {"requests_per_unit": 1}}]}`)
	if got := plane.Nacked("1"); !strings.HasPrefix(got, "resource default/eg/http: default/eg/http.a.rate_limit: unit is missing") {
		t.Errorf("the reason is %q", got)
	}
	c.hasMetric(1, "envoy_rls_config_reload_failures_total")
	c.hasMetric(0, "envoy_rls_config_last_reload_successful")
	c.becomes("/readyz", http.StatusOK, "resource default/eg/http")
	if got := c.ask(gatewayRule); got != "OVER_LIMIT" {
		t.Errorf("the old rules don't stay: %s", got)
	}

	// Neither does the end of the control plane change anything.
	plane.Stop()
	c.hasMetric(0, "envoy_rls_control_plane_up")
	tells(s, t, "control plane away, the rules in force stay", "connection refused")
	if got := c.ask(gatewayRule); got != "OVER_LIMIT" {
		t.Errorf("without a control plane: %s", got)
	}
	plane.Start()
	plane.Set("envoy-ratelimit", "3", strings.ReplaceAll(gatewayFile(t, "envoy-gateway.json"), `"requests_per_unit": 3`, `"requests_per_unit": 30`))
	plane.Acked("3")
	if got := c.ask(gatewayRule); got != "OK" {
		t.Errorf("with a limit of 30: %s", got)
	}
	c.hasMetric(1, "envoy_rls_config_last_reload_successful")

	// No resources are rules, too.
	plane.Set("envoy-ratelimit", "4")
	plane.Acked("4")
	if got := c.ask(gatewayRule); got != "OK" {
		t.Errorf("without any rule: %s", got)
	}
	c.becomes("/readyz", http.StatusOK)
	if code := s.End(); code != 0 {
		t.Errorf("it ended with %d", code)
	}
}

func TestAnAIGatewaysQuotasRefuseTogetherOnly(t *testing.T) {
	plane := proctest.StartControlPlane(t)
	plane.Set("envoy-ai-gateway-ratelimit", "1", gatewayFile(t, "ai-gateway.json"))
	s := proctest.StartService(t, "--config-type=xds", "--xds-server="+plane.Addr, "--xds-node-id=envoy-ai-gateway-ratelimit")
	const model = "backend_name=default/openai|model_name_override=gpt-4|"
	newGatewayCaller(t, s, "ai-gateway-quota").admits(4, model+"rule-0-match-0=rule-0-match-0", model+"rule-default-match--1=rule-default-match--1")
}

func TestDefaultsOfFilesApplyToRulesOfTheControlPlane(t *testing.T) {
	plane := proctest.StartControlPlane(t)
	plane.Set("default", "1", proctest.Resource("prod/eg/http", 3))
	file := filepath.Join(t.TempDir(), "defaults.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("domains: ['prod/*']\ndefaults: {algorithm: sliding_window}\n")
	s := proctest.StartService(t, "--config-type=xds", "--xds-server="+plane.Addr, "--rules="+file)
	c := newGatewayCaller(t, s, "prod/eg/http")
	write("domains: ['prod/*']\ndefaults: {algorithm: token_bucket}\nkeys: {user: {lowercase: true, hash: true}}\n")
	tells(s, t, "rule changed", "sliding window", "-> 3 per day", "token bucket")
	c.admits(3, "user=ann")
	if got := c.ask("user=ANN"); got != "OVER_LIMIT" {
		t.Errorf("a value that isn't prepared: %s", got)
	}

	// Defaults with which the rules can't be used change nothing, and rules that can't be used with them are refused.
	plane.Set("default", "2", proctest.Resource("prod/eg/http", 1000))
	plane.Acked("2")
	write("domains: ['prod/*']\ndefaults: {algorithm: sliding_log}\n")
	tells(s, t, "rules refused", "resource prod/eg/http", "sliding_log")
	c.becomes("/readyz", http.StatusOK, "sliding_log")
	if got := c.ask("user=bob"); got != "OK" {
		t.Errorf("the rules in force don't stay: %s", got)
	}
}

func TestASnapshotServesWhileTheControlPlaneIsAway(t *testing.T) {
	redis := proctest.StartRedis(t)
	file := filepath.Join(t.TempDir(), "rules.snapshot")
	for place, args := range map[string][]string{
		file: nil, "redis": {"--redis=" + redis.URL(), "--store-timeout=5s"},
	} {
		t.Run(filepath.Base(place), func(t *testing.T) {
			plane := proctest.StartControlPlane(t)
			plane.Set("default", "1", proctest.Resource("shop", 3))
			args := append(args, "--config-type=xds", "--xds-server="+plane.Addr, "--config-snapshot="+place, "--log-level=debug")
			first := proctest.StartService(t, args...)
			tells(first, t, "snapshot of the rules saved", "version=1")
			first.End()
			plane.Stop()

			s := proctest.StartService(t, args...)
			c := newGatewayCaller(t, s, "shop")
			c.admits(3, "user="+filepath.Base(place))
			c.hasMetric(1, "envoy_rls_config_info", `source="snapshot"`)
			tells(s, t, "level=WARN", "rules are from the snapshot", "version=1")
			plane.Start()
			plane.Set("default", "2", proctest.Resource("shop", 5))
			plane.Acked("2")
			c.hasMetric(1, "envoy_rls_config_info", `source="xds"`)
			c.hasMetric(0, "envoy_rls_config_info", `source="snapshot"`)
			c.admits(2, "user="+filepath.Base(place))
			tells(s, t, "snapshot of the rules saved", "version=2")
		})
	}
	t.Run("corrupt", func(t *testing.T) {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, data[:len(data)-1], 0o600); err != nil {
			t.Fatal(err)
		}
		plane := proctest.StartControlPlane(t)
		s := proctest.LaunchService(t, nil, "--config-type=xds", "--xds-server="+plane.Addr, "--config-snapshot="+file)
		tells(s, t, "level=WARN", "the snapshot of the rules is not used", "unexpected EOF")
		c := newGatewayCaller(t, s, "shop")
		c.becomes("/readyz", http.StatusServiceUnavailable)
		c.becomes("/healthcheck", http.StatusInternalServerError)
		plane.Set("default", "3", proctest.Resource("shop", 1))
		c.becomes("/readyz", http.StatusOK)
	})
}

func TestAMessageThatIsTooLongIsToldOfWithTheMend(t *testing.T) {
	plane := proctest.StartControlPlane(t)
	plane.Set("default", "1", proctest.Resource("shop", 1))
	s := proctest.LaunchService(t, []string{"XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES=100"}, "--config-type=xds", "--xds-server="+plane.Addr)
	tells(s, t, "level=WARN", "larger than max", "raise --xds-max-message (XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES)")
	newGatewayCaller(t, s, "shop").becomes("/readyz", http.StatusServiceUnavailable, "the control plane at "+plane.Addr, "larger than max")
}

func TestWithoutADomainAServiceThatNeedsOneIsNotWell(t *testing.T) {
	plane := proctest.StartControlPlane(t)
	plane.Set("default", "1")
	s := proctest.LaunchService(t, []string{"HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED=true", "CONFIG_TYPE=grpc_xds_sotw", "CONFIG_GRPC_XDS_SERVER_URL=" + plane.Addr})
	plane.Acked("1")
	c := newGatewayCaller(t, s, "shop")
	c.becomes("/readyz", http.StatusServiceUnavailable, "the rules have no domain")
	c.becomes("/healthcheck", http.StatusInternalServerError)
	plane.Set("default", "2", proctest.Resource("shop", 1))
	c.becomes("/healthcheck", http.StatusOK)
	c.becomes("/readyz", http.StatusOK)
}
