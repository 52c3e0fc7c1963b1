package metrics_test

import (
	"maps"
	"testing"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/metrics"
	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

func TestDecidedSumsUpTheValuesOfALimit(t *testing.T) {
	rules, problems := descriptors.Compile([]descriptors.File{{Name: "shop.yaml", Data: []byte(`domain: shop
descriptors: [{key: user, detailed_metric: true, rate_limit: {unit: day, requests_per_unit: 1}}]
`)}}, descriptors.Options{})
	if descriptors.HasErrors(problems) {
		t.Fatal(problems)
	}
	m := metrics.New("test")
	m.Loaded(rules, "file", true)
	events := m.Events()
	for _, path := range []string{"shop.user_ann", "shop.user_bob"} {
		events.Decided(rls.Decided{
			Domain: "shop", Path: "shop.user", Values: &descriptors.MetricPath{Path: path}, Result: rls.ResultOverLimit, Cost: 1, Over: 1,
		})
	}
	if got, want := m.Decided()["shop"]["shop.user"], (metrics.Results{rls.ResultOverLimit: 2}); !maps.Equal(got, want) {
		t.Errorf("decided %v, want %v", got, want)
	}
	if got := m.Totals("decisions_total", "result"); got["over_limit"] != 2 {
		t.Errorf("totals %v", got)
	}
	if got := m.Totals("no_such_counter", "result"); len(got) != 0 {
		t.Errorf("totals of no counter: %v", got)
	}
}
