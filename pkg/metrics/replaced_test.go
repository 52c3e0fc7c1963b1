package metrics_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/metrics"
	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

func compiled(t *testing.T, text string) *descriptors.Ruleset {
	t.Helper()
	rs, problems := descriptors.Compile([]descriptors.File{{Name: "a.yaml", Data: []byte(text)}}, descriptors.Options{})
	for _, p := range problems {
		if p.Severity == descriptors.Error {
			t.Fatal(p)
		}
	}
	return rs
}

// gatewayRules are like those that Envoy Gateway makes.
const gatewayRules = `
domain: default/eg/http
descriptors:
  - key: httproute/default/r/rule/0/match/0/*_envoyproxy_io
    value: httproute/default/r/rule/0/match/0/*_envoyproxy_io
    descriptors:
      - key: masked_remote_address
        value: 0.0.0.0/0
        rate_limit: {unit: hour, requests_per_unit: 3}
        descriptors:
          - {key: rule-0-match-0, value: a:b|c, rate_limit: {unit: hour, requests_per_unit: 3}}
          - {key: rule-0-match-1, rate_limit: {unit: hour, requests_per_unit: 3}}
`

const (
	gatewayPath  = "default/eg/http.httproute/default/r/rule/0/match/0/*_envoyproxy_io_httproute/default/r/rule/0/match/0/*_envoyproxy_io.masked_remote_address_0.0.0.0/0"
	gatewayKey   = "default/eg/http.httproute/default/r/rule/0/match/0/*_envoyproxy_io_httproute/default/r/rule/0/match/0/*_envoyproxy_io.masked_remote_address_0_0_0_0/0"
	gatewayLabel = `{domain="default/eg/http",key1="httproute/default/r/rule/0/match/0/*_envoyproxy_io_httproute/default/r/rule/0/match/0/*_envoyproxy_io",key2="masked_remote_address_0_0_0_0/0"}`
)

// decide has four hits, the last two of which are refused, the third near the limit.
func decide(m *metrics.Metrics, path string) {
	const domain = "default/eg/http"
	decided := m.Events().Decided
	decided(rls.Decided{Domain: domain, Path: path, Result: rls.ResultOK, Cost: 2})
	decided(rls.Decided{Domain: domain, Path: path, Result: rls.ResultNearLimit, Cost: 1, Near: 1})
	decided(rls.Decided{Domain: domain, Path: path, Result: rls.ResultOverLimit, Cost: 2, Over: 1})
}

func TestTheReplacedServicesSeriesAreThoseOfItsDashboards(t *testing.T) {
	m := metrics.New("v1")
	m.Loaded(compiled(t, gatewayRules), "file", true)
	expectLines(t, m, `ratelimit_service_rate_limit_over_limit`+gatewayLabel+` 0`)
	decide(m, gatewayPath)
	decide(m, gatewayPath+".rule-0-match-0_a:b|c") // a third level is summed up
	e := m.Events()
	e.Decided(rls.Decided{Domain: "default/eg/http", Path: gatewayPath, Result: rls.ResultFailed, Cost: 7})
	e.Answered(rls.Answered{GRPC: true, Took: 62500 * time.Microsecond})
	e.Answered(rls.Answered{Took: time.Hour}) // by /json
	e.Answered(rls.Answered{GRPC: true, Code: codes.Unavailable, Took: 125 * time.Millisecond})
	e.Answered(rls.Answered{Code: codes.InvalidArgument})
	e.StoreFailed(nil, "timeout")
	e.Unmatched(rls.Unmatched{})
	e.Unmatched(rls.Unmatched{Domain: "default/eg/http"})
	m.Refused()
	m.ReplacedGauge("ratelimit.redis_pool.cx_active", func() float64 { return 4 })
	expectLines(t, m,
		`ratelimit_service_rate_limit_total_hits`+gatewayLabel+` 17`,
		`ratelimit_service_rate_limit_within_limit`+gatewayLabel+` 6`,
		`ratelimit_service_rate_limit_near_limit`+gatewayLabel+` 2`,
		`ratelimit_service_rate_limit_over_limit`+gatewayLabel+` 2`,
		`ratelimit_service_total_requests{grpc_method="ShouldRateLimit"} 2`,
		`ratelimit_service_response_time_seconds_bucket{grpc_method="ShouldRateLimit",le="0.25"} 2`,
		`ratelimit_service_response_time_seconds_sum{grpc_method="ShouldRateLimit"} 0.1875`,
		`ratelimit_service_should_rate_limit_error{err_type="redis_error"} 1`,
		`ratelimit_service_should_rate_limit_error{err_type="service_error"} 1`,
		`ratelimit_service_config_load_success 1`,
		`ratelimit_service_config_load_error 1`,
		`ratelimit_service_global_shadow_mode 0`,
		`ratelimit_service_rate_limit_domain_not_found 1`,
		`ratelimit_redis_pool_cx_active 4`,
	)
	expectStats(t, m,
		"ratelimit.service.rate_limit."+gatewayKey+".total_hits: 12",
		"ratelimit.service.rate_limit."+gatewayKey+".rule-0-match-0_a_b_c.total_hits: 5",
		"ratelimit.service.rate_limit."+gatewayKey+".rule-0-match-1.total_hits: 0",
		"ratelimit.service.rate_limit._other.domain_not_found: 1",
		"ratelimit.service.config_load_success: 1",
		"ratelimit_server.ShouldRateLimit.total_requests: 2",
	)
}

func expectStats(t *testing.T, m *metrics.Metrics, lines ...string) {
	t.Helper()
	var text strings.Builder
	if err := m.WriteStats(&text); err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		if !strings.Contains("\n"+text.String(), "\n"+line+"\n") {
			t.Errorf("no line %s in\n%s", line, text.String())
		}
	}
}

func TestCallsWithoutRulesAreErrorsOfTheService(t *testing.T) {
	m := metrics.New("v1")
	m.Events().Answered(rls.Answered{GRPC: true, Code: codes.Unavailable})
	expectLines(t, m, `ratelimit_service_should_rate_limit_error{err_type="service_error"} 1`)
}

func TestShadowsAndLimitsOfOneRuleAreToldApart(t *testing.T) {
	m := metrics.New("v1")
	m.Loaded(rules(t), "file", true)
	m.Events().Decided(rls.Decided{Domain: "shop", Path: "shop.user/now", Result: rls.ResultOK, Cost: 1})
	m.Events().Decided(rls.Decided{Domain: "shop", Path: "shop.user/tried", Result: rls.ResultShadowOverLimit, Cost: 3, Over: 2, Near: 1})
	expectLines(t, m,
		`ratelimit_service_rate_limit_total_hits{domain="shop",key1="user/now"} 1`,
		`ratelimit_service_rate_limit_total_hits{domain="shop",key1="user/tried"} 3`,
		`ratelimit_service_rate_limit_over_limit{domain="shop",key1="user/tried"} 2`,
		`ratelimit_service_rate_limit_shadow_mode{domain="shop",key1="user/tried"} 2`,
	)
	if strings.Contains(scrape(t, m), `shadow_mode{domain="shop",key1="user/now"`) {
		t.Error("a limit that is no shadow has a series of shadows")
	}
}

// TestASumDoesNotFallWhenAPartOfItGoes since that would look as if it had begun anew, and grown by all that is left.
func TestASumDoesNotFallWhenAPartOfItGoes(t *testing.T) {
	m := metrics.New("v1")
	m.Loaded(compiled(t, gatewayRules), "file", true)
	decide(m, gatewayPath)
	decide(m, gatewayPath+".rule-0-match-1")
	shorter, _, _ := strings.Cut(gatewayRules, "          - {key: rule-0-match-1")
	m.Loaded(compiled(t, shorter), "file", true)
	decide(m, gatewayPath)
	expectLines(t, m, `ratelimit_service_rate_limit_total_hits`+gatewayLabel+` 15`)
	m.Loaded(compiled(t, "domain: other"), "file", true)
	m.Loaded(compiled(t, gatewayRules), "file", true)
	expectLines(t, m, `ratelimit_service_rate_limit_total_hits`+gatewayLabel+` 0`)
}

func TestLimitsOfRequestsHaveSeriesUntilTheyAreTooMany(t *testing.T) {
	m := metrics.New("v1")
	m.Loaded(rules(t), "file", true)
	decided := m.Events().Decided
	send := func(value string) {
		path := descriptors.SentPath("shop", []descriptors.Entry{{Key: "a", Value: value}, {Key: "b"}})
		decided(rls.Decided{Domain: "shop", Path: "shop" + rls.BroughtAlong, Values: &path, Result: rls.ResultOK, Cost: 1})
	}
	send("10.0.0.1")
	send("line\nbreak\xff")
	send(strings.Repeat("long", 200))
	for i := range 300 {
		send(fmt.Sprint(i))
	}
	decided(rls.Decided{Domain: "shop", Path: "shop" + rls.BroughtAlong, Result: rls.ResultOK, Cost: 1})
	const hits = "ratelimit_service_rate_limit_total_hits"
	expectLines(t, m,
		hits+`{domain="shop",key1="a_10_0_0_1",key2="b"} 1`,
		hits+`{domain="shop",key1="a_line_break?",key2="b"} 1`,
		hits+`{domain="shop",key1="_override/_other"} 104`,
		hits+`{domain="shop",key1="_override"} 1`,
		`envoy_rls_series_capped_total 104`,
	)
	if n := strings.Count(scrape(t, m), "\n"+hits+`{domain="shop",key1="`); n > 206 {
		t.Errorf("%d series", n)
	}
	m.Loaded(compiled(t, "domain: other"), "file", true)
	if got := scrape(t, m); strings.Contains(got, "shop") {
		t.Error("the limits of requests are still there, without their domain")
	}
}

func TestTagsAreLabelsAndTimesCanBeInMilliseconds(t *testing.T) {
	m := metrics.New("v1")
	m.Replaced(metrics.ReplacedOptions{Tags: map[string]string{"env": "prod", "my-zone": "a"}, Milliseconds: true})
	m.Loaded(rules(t), "file", true)
	m.Events().Answered(rls.Answered{GRPC: true, Took: 4 * time.Millisecond})
	expectLines(t, m,
		`ratelimit_service_rate_limit_total_hits{domain="shop",env="prod",key1="user/now",my_zone="a"} 0`,
		`ratelimit_service_config_load_success{env="prod",my_zone="a"} 1`,
		`ratelimit_service_response_time_seconds_bucket{env="prod",grpc_method="ShouldRateLimit",my_zone="a",le="5"} 1`,
		`ratelimit_service_response_time_seconds_sum{env="prod",grpc_method="ShouldRateLimit",my_zone="a"} 4`,
		`envoy_rls_rules{domain="shop"} 2`,
	)
}

func TestTagsThatCannotBeLabelsAreNamed(t *testing.T) {
	for tag, want := range map[string]string{"key1": "by themselves", "__name": "begin with a letter", "-": "begin with a letter"} {
		err := metrics.ReplacedOptions{Tags: map[string]string{tag: "v"}}.Validate()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", tag, err)
		}
	}
	err := metrics.ReplacedOptions{Tags: map[string]string{"a-b": "", "a.b": ""}}.Validate()
	if err == nil || !strings.Contains(err.Error(), "are one label, a_b") {
		t.Error(err)
	}
	if err := (metrics.ReplacedOptions{Tags: map[string]string{"9lives": "cat", "kube.zone": "a"}}).Validate(); err != nil {
		t.Error(err)
	}
}
