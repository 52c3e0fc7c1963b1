package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// gatewayRules are like those that Envoy Gateway makes, for two networks and for everyone.
const gatewayRules = `
domain: default/eg/http
descriptors:
  - key: httproute/default/r/rule/0/match/0/*_envoyproxy_io
    value: httproute/default/r/rule/0/match/0/*_envoyproxy_io
    descriptors:
      - key: masked_remote_address
        value: 0.0.0.0/0
        rate_limit: {unit: day, requests_per_unit: 3}
      - key: masked_remote_address
        value: invert:192.0.2.0/24
        descriptors:
          - {key: remote_address, rate_limit: {unit: day, requests_per_unit: 3}}
      - {key: rule-0-match--1, value: rule-0-match--1, rate_limit: {unit: day, requests_per_unit: 3}, shadow_mode: true}
`

const gatewayRoute = "httproute/default/r/rule/0/match/0/*_envoyproxy_io"

// gatewayDescriptor is what Envoy sends for a route, of entries key, value, …
func gatewayDescriptor(entries ...string) *common.RateLimitDescriptor {
	d := &common.RateLimitDescriptor{}
	for pair := range slices.Chunk(append([]string{gatewayRoute, gatewayRoute}, entries...), 2) {
		d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: pair[0], Value: pair[1]})
	}
	return d
}

// get reads a page, and returns its status and text.
func get(t *testing.T, url string) (code int, text string) {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }() // it has been read
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(body)
}

func expectParts(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("no %q in\n%s", p, text)
		}
	}
}

// TestEnvoyGatewaysQueriesFindTheirSeries has Envoy Gateway's variables for metrics, and asks for what its dashboard and
// its tests ask for.
func TestEnvoyGatewaysQueriesFindTheirSeries(t *testing.T) {
	root := t.TempDir()
	rules := filepath.Join(root, "ratelimit", "config")
	if err := os.MkdirAll(rules, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(rules, "eg.yaml"), []byte(gatewayRules), 0o600); err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprint("127.0.0.1:", proctest.FreePort(t))
	service := proctest.LaunchService(t, []string{
		"RUNTIME_ROOT=" + root, "RUNTIME_SUBDIRECTORY=ratelimit", "REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + proctest.StartRedis(t).Addr,
		"LOG_LEVEL=info", "USE_STATSD=false", "USE_PROMETHEUS=true", "PROMETHEUS_ADDR=" + address, "PROMETHEUS_MAPPER_YAML=/etc/statsd-exporter/conf.yaml",
		"EXTRA_TAGS=cluster:east", "STORE_TIMEOUT=5s",
	}, "--compat="+compatName)
	proctest.Eventually(t, "it is ready", func() bool { code, _ := service.Get("/readyz"); return code == http.StatusOK })
	client := ratelimit.NewRateLimitServiceClient(dial(t, service.GRPC))
	ask := func(d *common.RateLimitDescriptor) {
		req := &ratelimit.RateLimitRequest{Domain: "default/eg/http", Descriptors: []*common.RateLimitDescriptor{d}}
		if _, err := client.ShouldRateLimit(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	for range 5 {
		ask(gatewayDescriptor("masked_remote_address", "0.0.0.0/0"))
		ask(gatewayDescriptor("rule-0-match--1", "rule-0-match--1"))
	}
	ask(gatewayDescriptor("masked_remote_address", "invert:192.0.2.0/24", "remote_address", "198.51.100.1"))
	ask(gatewayDescriptor("masked_remote_address", "invert:192.0.2.0/24", "remote_address", "198.51.100.2"))
	fromMetadata := gatewayDescriptor("user", "ann")
	fromMetadata.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 9, Unit: typev3.RateLimitUnit_HOUR}
	ask(fromMetadata)
	if _, err := client.ShouldRateLimit(t.Context(), &ratelimit.RateLimitRequest{}); err == nil {
		t.Error("a request without a domain is answered")
	}

	_, got := get(t, "http://"+address+"/metrics")
	series := func(kind, key2 string, n int) string {
		return fmt.Sprintf("\nratelimit_service_rate_limit_%s{cluster=\"east\",domain=\"default/eg/http\",key1=\"%s_%s\",key2=\"%s\"} %d\n",
			kind, gatewayRoute, gatewayRoute, key2, n)
	}
	all, inverted, everyone := "masked_remote_address_0_0_0_0/0", "masked_remote_address_invert_192_0_2_0/24", "rule-0-match--1_rule-0-match--1"
	expectParts(t, got,
		series("total_hits", all, 5), series("over_limit", all, 2), series("within_limit", all, 3), series("near_limit", all, 1),
		series("total_hits", inverted, 2), series("over_limit", inverted, 0),
		series("over_limit", everyone, 2), series("shadow_mode", everyone, 2), series("within_limit", everyone, 3),
		series("total_hits", "user_ann", 1),
		"\nratelimit_service_total_requests{cluster=\"east\",grpc_method=\"ShouldRateLimit\"} 14\n",
		"\nratelimit_service_response_time_seconds_count{cluster=\"east\",grpc_method=\"ShouldRateLimit\"} 14\n",
		"\nratelimit_service_should_rate_limit_error{cluster=\"east\",err_type=\"service_error\"} 1\n",
		"\nratelimit_service_should_rate_limit_error{cluster=\"east\",err_type=\"redis_error\"} 0\n",
		"\nratelimit_service_config_load_success{cluster=\"east\"} 1\n",
		"\nratelimit_service_config_load_error{cluster=\"east\"} 0\n",
	)
	if code, _ := get(t, "http://"+address+"/debug/pprof/"); code != http.StatusNotFound {
		t.Errorf("the port for metrics has pprof: %d", code)
	}
	_, stats := get(t, "http://"+service.Admin+"/stats")
	expectParts(t, stats, "ratelimit.service.rate_limit.default/eg/http."+gatewayRoute+"_"+gatewayRoute+"."+inverted+".remote_address.total_hits: 2\n",
		"ratelimit.redis_pool.cx_active: ")
	if lines := strings.Split(strings.TrimSpace(stats), "\n"); !slices.IsSorted(lines) {
		t.Errorf("the lines of /stats are in no order:\n%s", stats)
	}
	expectParts(t, service.Output(), "a variable has no effect\" variable=PROMETHEUS_MAPPER_YAML", "metric_relabel_configs", "listening for metrics alone")
}

// listener is a statsd, and what it has got.
type listener struct {
	port string
	mu   sync.Mutex
	text strings.Builder
}

// Write implements io.Writer.
func (l *listener) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(text)
}

func (l *listener) has(part string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), part)
}

func listenUDP(t *testing.T) *listener {
	t.Helper()
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	l := &listener{port: portOf(conn.LocalAddr())}
	go func() { _, _ = io.Copy(l, conn) }() // until it is closed
	return l
}

func listenTCP(t *testing.T) *listener {
	t.Helper()
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	l := &listener{port: portOf(server.Addr())}
	go func() {
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			_, _ = io.Copy(l, conn) // until it is closed
		}
	}()
	return l
}

func portOf(address net.Addr) string {
	_, port, err := net.SplitHostPort(address.String())
	if err != nil {
		panic(err)
	}
	return port
}

func TestStatsdAndDogStatsDGetTheOldNames(t *testing.T) {
	plain, dog := listenTCP(t), listenUDP(t)
	for _, c := range []struct {
		server *listener
		env    []string
		want   []string
	}{
		{plain, []string{"USE_STATSD=true", "EXTRA_TAGS=env:prod"}, []string{
			"ratelimit.service.rate_limit.shop.user.total_hits.__env=prod:1|c\n",
			"ratelimit.service.config_load_success.__env=prod:1|c\n",
			"ratelimit_server.ShouldRateLimit.total_requests.__env=prod:1|c\n",
			"ratelimit_server.ShouldRateLimit.response_time.__env=prod:",
		}},
		{dog, []string{
			"USE_DOG_STATSD=true", "USE_DOG_STATSD_MOGRIFIERS=LIMITS", "EXTRA_TAGS=env:prod",
			`DOG_STATSD_MOGRIFIER_LIMITS_PATTERN=^ratelimit\.service\.rate_limit\.(.*)\.(.*)\.(.*)$`,
			"DOG_STATSD_MOGRIFIER_LIMITS_NAME=ratelimit.service.rate_limit.$3", "DOG_STATSD_MOGRIFIER_LIMITS_TAGS=domain:$1,descriptor:$2",
		}, []string{
			"ratelimit.service.rate_limit.total_hits:1|c|#env:prod,descriptor:user,domain:shop",
			"ratelimit_server.ShouldRateLimit.response_time:",
		}},
	} {
		env := append(slices.Clone(c.env), "STATSD_HOST=127.0.0.1", "STATSD_PORT="+c.server.port, "STATS_FLUSH_INTERVAL=1h")
		service := proctest.LaunchService(t, env, "--rules="+writeRules(t))
		proctest.Eventually(t, "it is ready", func() bool { code, _ := service.Get("/readyz"); return code == http.StatusOK })
		if _, err := ratelimit.NewRateLimitServiceClient(dial(t, service.GRPC)).ShouldRateLimit(t.Context(), shopRequest("user")); err != nil {
			t.Fatal(err)
		}
		service.Signal(syscall.SIGINT)
		if code := service.Wait(); code != 0 {
			t.Errorf("exit %d", code)
		}
		for _, want := range c.want { // sent at the end
			proctest.Eventually(t, want+" arrives", func() bool { return c.server.has(want) })
		}
		expectParts(t, service.Output(), `msg="statistics are sent"`)
	}
}

func TestAStatsdIsMissedAloudOnlyIfItWasAskedFor(t *testing.T) {
	compat, nativeMode := compatMode(compatName), compatMode("")
	for _, c := range []struct {
		mode         compatMode
		env          string
		dog          bool
		sends, wants bool
	}{
		{compat, "", false, true, false},
		{compat, "USE_STATSD", false, true, true},
		{compat, "STATSD_HOST", false, true, true},
		{compat, "", true, false, false},
		{compat, "USE_STATSD", true, true, true},
		{nativeMode, "", false, true, true},
	} {
		t.Run(fmt.Sprintf("%s %s %t", c.mode, c.env, c.dog), func(t *testing.T) {
			if c.env != "" {
				t.Setenv(c.env, "true")
			}
			s := settings{Compat: c.mode, Statistics: statisticsSettings{Statsd: true, DogStatsd: c.dog}}
			if s.sendsStatsd() != c.sends || s.wantsStatsd() != c.wants {
				t.Errorf("it sends: %t, and that was asked for: %t", s.sendsStatsd(), s.wantsStatsd())
			}
		})
	}
}
