package e2e

import (
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// documentedTracing is the configuration of Envoy in docs/tracing.md, which samples all requests here.
func documentedTracing(t *testing.T, c *proctest.Collector) (tracing, cluster any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(proctest.Root(), "docs", "tracing.md"))
	if err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(c.GRPC)
	if err != nil {
		t.Fatal(err)
	}
	here := strings.NewReplacer("{value: 1}", "{value: 100}", "address: collector, port_value: 4317", "address: "+at.Hostname()+", port_value: "+at.Port())
	var manager struct{ Tracing any }
	var clusters []any
	blocks := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllStringSubmatch(here.Replace(string(text)), -1)
	if len(blocks) < 2 {
		t.Fatalf("docs/tracing.md has %d blocks of YAML", len(blocks))
	}
	if err := yaml.Unmarshal([]byte(blocks[0][1]), &manager); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal([]byte(blocks[1][1]), &clusters); err != nil || len(clusters) != 1 {
		t.Fatalf("%v: %d clusters", err, len(clusters))
	}
	return manager.Tracing, clusters[0]
}

func TestACallIsBelowEnvoysSpanInItsTrace(t *testing.T) {
	c := proctest.StartCollector(t)
	for name, value := range map[string]string{
		"TRACING_ENABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": c.HTTP, "OTEL_BSP_SCHEDULE_DELAY": "10",
	} {
		t.Setenv(name, value)
	}
	s := exactService(t, "--redis="+proctest.StartRedis(t).URL(),
		rulesIn(t, map[string]string{"traced": "- {key: user, rate_limit: {unit: day, requests_per_unit: 1}}"}))
	b := bootstrap{
		Listeners: []listener{{Name: "ingress", Service: "service", Deny: true}},
		Services:  []cluster{replicas("service", s)},
		Routes:    []route{{"traced", limits(t, "- actions: [{request_headers: {header_name: x-user, descriptor_key: user}}]")}},
	}
	b.Tracing, b.Collector = documentedTracing(t, c)
	g := startGateway(t, b)
	r := request{listener: "ingress", path: "traced", headers: []string{"x-user: ann"}}
	g.answers(t, r, "200")
	g.answers(t, r, "429")
	var calls []proctest.Span
	proctest.Eventually(t, "both calls are below spans of Envoy", func() bool {
		calls = slices.DeleteFunc(c.Spans(), func(s proctest.Span) bool { return s.Name != "ShouldRateLimit" })
		return len(calls) == 2 && !slices.ContainsFunc(calls, func(call proctest.Span) bool {
			return !slices.ContainsFunc(c.Spans(), func(s proctest.Span) bool {
				return s.Resource["service.name"] == "ingress" && s.Trace == call.Trace && s.ID == call.Parent
			})
		})
	})
	if calls[0].Trace == calls[1].Trace {
		t.Errorf("two requests are in the trace %s", calls[0].Trace)
	}
	if by := calls[1].Attributes["ratelimit.denied_by"]; by != "traced.user" {
		t.Errorf("the refused call was denied by %q", by)
	}
	if store := c.Named(t, calls[0].Trace, "EVALSHA"); store.Parent != calls[0].ID {
		t.Errorf("the store's span is below %s, the call's is %s", store.Parent, calls[0].ID)
	}
}
