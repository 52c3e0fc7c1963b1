package metrics_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
	"github.com/envoy-rls/envoy-rls/pkg/metrics"
	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

func scrape(t *testing.T, m *metrics.Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return w.Body.String()
}

func expectLines(t *testing.T, m *metrics.Metrics, lines ...string) {
	t.Helper()
	got := scrape(t, m)
	for _, line := range lines {
		if !strings.Contains(got, "\n"+line+"\n") {
			t.Errorf("no line %s", line)
		}
	}
}

func rules(t *testing.T) *descriptors.Ruleset {
	t.Helper()
	rs, problems := descriptors.Compile([]descriptors.File{{Name: "a.yaml", Data: []byte(`
domain: shop
descriptors:
  - {key: free, rate_limit: {unlimited: true}}
  - key: user
    rate_limits:
      - {name: now, unit: minute, requests_per_unit: 1}
      - {name: tried, unit: hour, requests_per_unit: 1, shadow_mode: true}
`)}}, descriptors.Options{})
	for _, p := range problems {
		t.Fatal(p)
	}
	return rs
}

func TestEveryLimitHasItsSeriesFromTheStart(t *testing.T) {
	m := metrics.New("v1")
	rs := rules(t)
	m.Loaded(rs, "file", true)
	expectLines(t, m,
		`envoy_rls_build_info{version="v1"} 1`,
		`envoy_rls_config_info{hash="`+rs.Hash+`",source="file"} 1`,
		`envoy_rls_config_last_reload_successful 1`,
		`envoy_rls_rules{domain="shop"} 2`,
		`envoy_rls_decisions_total{domain="shop",result="unlimited",rule="shop.free"} 0`,
		`envoy_rls_decisions_total{domain="shop",result="ok",rule="shop.user/now"} 0`,
		`envoy_rls_decisions_total{domain="shop",result="over_limit",rule="shop.user/now"} 0`,
		`envoy_rls_decisions_total{domain="shop",result="shadow_over_limit",rule="shop.user/tried"} 0`,
	)
	m.Refused()
	expectLines(t, m, `envoy_rls_config_last_reload_successful 0`, `envoy_rls_config_reload_failures_total 1`,
		`envoy_rls_config_info{hash="`+rs.Hash+`",source="file"} 1`)
}

func TestEventsAreCounted(t *testing.T) {
	m := metrics.New("v1")
	e := m.Events()
	e.Answered(rls.Answered{
		GRPC: true, Domain: "shop", OverLimit: true, Took: 3 * time.Millisecond, Granted: 20 * time.Millisecond, Late: true,
	})
	e.Answered(rls.Answered{GRPC: true, Code: codes.InvalidArgument, Took: time.Millisecond})
	m.StoreCalled(3, time.Millisecond, 2*time.Millisecond)
	e.Decided(rls.Decided{Domain: "shop", Path: "shop.user/now", Result: rls.ResultOverLimit, Cost: 4, Over: 3, Near: 1})
	e.Decided(rls.Decided{Domain: "shop", Path: "shop.user/now", Result: rls.ResultOK})
	e.Unmatched(rls.Unmatched{})
	e.Empty("shop")
	e.Answered(rls.Answered{Took: time.Hour})
	e.BadOverride("shop")
	e.Degraded("shop", limiter.FailAllow, "timeout")
	e.StoreFailed(errors.New("away"), "connection")
	expectLines(t, m,
		`envoy_rls_requests_total{code="over_limit",domain="shop"} 1`,
		`envoy_rls_requests_total{code="error",domain=""} 1`,
		`envoy_rls_request_duration_seconds_bucket{le="0.002"} 1`,
		`envoy_rls_request_duration_seconds_bucket{le="0.005"} 2`,
		`envoy_rls_decisions_total{domain="shop",result="over_limit",rule="shop.user/now"} 1`,
		`envoy_rls_hits_total{domain="shop",result="over_limit",rule="shop.user/now"} 3`,
		`envoy_rls_hits_total{domain="shop",result="refused_within_limit",rule="shop.user/now"} 1`,
		`envoy_rls_near_limit_hits_total{domain="shop",rule="shop.user/now"} 1`,
		`envoy_rls_hits_total{domain="shop",result="ok",rule="shop.user/now"} 0`,
		`envoy_rls_unmatched_descriptors_total{domain=""} 1`,
		`envoy_rls_empty_descriptors_total{domain="shop"} 1`,
		`envoy_rls_unknown_domain_total 1`,
		`envoy_rls_bad_requests_total 1`,
		`envoy_rls_bad_overrides_total{domain="shop"} 1`,
		`envoy_rls_degraded_answers_total{domain="shop",policy="allow",reason="timeout"} 1`,
		`envoy_rls_store_errors_total{reason="connection"} 1`,
		`envoy_rls_late_answers_total{domain="shop"} 1`,
		`envoy_rls_request_deadline_seconds_bucket{le="0.02"} 1`,
		`envoy_rls_store_request_duration_seconds_bucket{le="0.002"} 1`,
		`envoy_rls_store_batch_size_sum 3`,
		`envoy_rls_queue_seconds_bucket{le="0.001"} 1`,
	)
}

// TestWhatWasRefusedFromMemoryIsToldByItsLimit also has a limit that a request brought along.
func TestWhatWasRefusedFromMemoryIsToldByItsLimit(t *testing.T) {
	m := metrics.New("v1")
	m.Loaded(rules(t), "file", true)
	decided := m.Events().Decided
	decided(rls.Decided{Domain: "shop", Path: "shop.user/now", Result: rls.ResultOverLimit, Cost: 3, Over: 2, Remembered: true})
	decided(rls.Decided{Domain: "shop", Path: "shop.user/now", Result: rls.ResultOverLimit, Cost: 5, Over: 5})
	decided(rls.Decided{Domain: "shop", Path: "shop" + rls.BroughtAlong, Result: rls.ResultOverLimit, Cost: 4, Over: 4, Remembered: true})
	expectLines(t, m,
		`envoy_rls_deny_cache_refused_hits_total{domain="shop",rule="shop.user/now"} 3`,
		`envoy_rls_deny_cache_refused_hits_total{domain="shop",rule="shop._override"} 4`,
	)
}

func TestWhatIsAskedForWhenMetricsAreRead(t *testing.T) {
	m := metrics.New("v1")
	m.Loaded(rules(t), "file", true)
	m.Queues(func() map[string]int { return map[string]int{"shop": 3, "what a client": 1, "made up": 2} })
	m.GaugeFunc("replicas", "Replicas.", "")("", func() float64 { return 7 })
	expectLines(t, m,
		`envoy_rls_rule_distinct_values{domain="shop",rule="shop.user"} 0`,
		`envoy_rls_queue_length{domain="shop"} 3`,
		`envoy_rls_queue_length{domain=""} 3`,
		`envoy_rls_replicas 7`,
	)
}

func TestTheSeriesOfRulesThatAreGoneGoToo(t *testing.T) {
	m := metrics.New("v1")
	rs := rules(t)
	m.Loaded(rs, "file", true)
	m.Events().Decided(rls.Decided{Domain: "shop", Path: "shop.user/now", Result: rls.ResultOverLimit, Cost: 1, Remembered: true})
	m.Events().Decided(rls.Decided{Domain: "shop", Path: "shop.user/now", Result: rls.ResultReplaced, Cost: 1})
	empty, _ := descriptors.Compile(nil, descriptors.Options{})
	m.Loaded(empty, "file", true)
	if got := scrape(t, m); strings.Contains(got, "shop") {
		t.Errorf("a rule that is gone is still there:\n%s", got)
	}
}

func userPath(i int) *descriptors.MetricPath {
	key := fmt.Sprintf("user_%d/now", i)
	return &descriptors.MetricPath{Path: "shop." + key, Keys: [2]string{key}}
}

func TestValuesHaveSeriesUntilTheyAreTooMany(t *testing.T) {
	m := metrics.New("v1")
	m.Loaded(rules(t), "file", true)
	decided := m.Events().Decided
	for i := range 300 {
		decided(rls.Decided{
			Domain: "shop", Path: "shop.user/now", Values: userPath(i), Result: rls.ResultOK, Cost: 1,
		})
	}
	decided(rls.Decided{Domain: "shop", Path: "shop.user/now", Values: userPath(7), Result: rls.ResultOK, Cost: 1})
	expectLines(t, m,
		`envoy_rls_hits_total{domain="shop",result="ok",rule="shop.user_7/now"} 2`,
		`envoy_rls_hits_total{domain="shop",result="ok",rule="shop.user/now/_other"} 100`,
		`envoy_rls_series_capped_total 100`,
	)
	empty, _ := descriptors.Compile(nil, descriptors.Options{})
	m.Loaded(empty, "file", true)
	if got := scrape(t, m); strings.Contains(got, "shop") {
		t.Error("values of a rule that is gone are still there")
	}
}

// TestValuesOfAllRulesHaveTwentyThousandSeries has a hundred rules with as many values as a rule's may have, and two more.
func TestValuesOfAllRulesHaveTwentyThousandSeries(t *testing.T) {
	const full, ofARule = 100, 200
	load := func(m *metrics.Metrics, from int) {
		text := "domain: shop\ndescriptors:\n"
		for i := from; i < full+2; i++ {
			text += fmt.Sprintf("  - {key: k%d, rate_limit: {unit: day, requests_per_unit: 1}}\n", i)
		}
		rs, problems := descriptors.Compile([]descriptors.File{{Name: "a.yaml", Data: []byte(text)}}, descriptors.Options{})
		for _, p := range problems {
			t.Fatal(p)
		}
		m.Loaded(rs, "file", true)
	}
	m := metrics.New("v1")
	load(m, 0)
	decide := func(rule, value int) {
		key := fmt.Sprintf("k%d_%d", rule, value)
		m.Events().Decided(rls.Decided{
			Domain: "shop", Path: fmt.Sprintf("shop.k%d", rule), Values: &descriptors.MetricPath{Path: "shop." + key, Keys: [2]string{key}},
			Result: rls.ResultOK, Cost: 1,
		})
	}
	for rule := range full {
		for value := range ofARule {
			decide(rule, value)
		}
	}
	decide(full, 0)
	decide(full, 1)
	decide(full-1, ofARule-1)
	expectLines(t, m,
		`envoy_rls_hits_total{domain="shop",result="ok",rule="shop.k99_199"} 2`,
		`envoy_rls_hits_total{domain="shop",result="ok",rule="shop.k100/_other"} 2`,
		`envoy_rls_series_capped_total 2`,
	)
	load(m, 1) // the values of a rule that is gone leave room for others
	decide(full+1, 0)
	expectLines(t, m, `envoy_rls_hits_total{domain="shop",result="ok",rule="shop.k101_0"} 1`, `envoy_rls_series_capped_total 2`)
}
