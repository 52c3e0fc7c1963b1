package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/metadata"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

const callersSpan = "b7ad6b7169203331"

// traceNumber is the id of a trace.
func traceNumber(n int) string { return fmt.Sprintf("0af7651916cd43dd8448eb21%08x", n) }

func traceParent(n int, sampled bool) []string {
	flag := map[bool]string{true: "01", false: "00"}[sampled]
	return []string{"traceparent", "00-" + traceNumber(n) + "-" + callersSpan + "-" + flag}
}

// tracedService starts a service that sends spans at once over a protocol.
func tracedService(t *testing.T, c *proctest.Collector, protocol string, env []string, args ...string) *proctest.Service {
	t.Helper()
	endpoint := map[string]string{"http": c.HTTP, "grpc": c.GRPC}[protocol]
	env = append([]string{
		"TRACING_ENABLED=true", "TRACING_EXPORTER_PROTOCOL=" + protocol, "OTEL_EXPORTER_OTLP_ENDPOINT=" + endpoint,
		"OTEL_BSP_SCHEDULE_DELAY=10",
	}, env...)
	s := proctest.LaunchService(t, env, append([]string{"--rules=" + writeRules(t), "--store-timeout=5s"}, args...)...)
	awaitReady(t, s)
	return s
}

func awaitReady(t *testing.T, s *proctest.Service) {
	t.Helper()
	proctest.Eventually(t, "envoy-rls is ready", func() bool {
		code, _ := s.Get("/readyz")
		return code == http.StatusOK
	})
}

// asker asks a service with headers.
func asker(t *testing.T, s *proctest.Service) func(headers ...string) {
	client := ratelimit.NewRateLimitServiceClient(dial(t, s.GRPC))
	return func(headers ...string) {
		t.Helper()
		ctx := metadata.AppendToOutgoingContext(context.Background(), headers...)
		if _, err := client.ShouldRateLimit(ctx, shopRequest("user")); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSpansContinueTheCallersTraceToRedis(t *testing.T) {
	for _, protocol := range []string{"http", "grpc"} {
		t.Run(protocol, func(t *testing.T) {
			c := proctest.StartCollector(t)
			s := tracedService(t, c, protocol, []string{
				"TRACING_SERVICE_NAMESPACE=edge", "TRACING_SERVICE_INSTANCE_ID=pod-1", "OTEL_RESOURCE_ATTRIBUTES=region=north",
			}, "--redis="+proctest.StartRedis(t).URL())
			ask := asker(t, s)
			ask(traceParent(1, true)...)
			ask("b3", traceNumber(2)+"-"+callersSpan+"-1")
			ask("x-b3-traceid", traceNumber(3), "x-b3-spanid", callersSpan, "x-b3-sampled", "1")
			for n := 1; n <= 3; n++ {
				call, store := c.Named(t, traceNumber(n), "ShouldRateLimit"), c.Named(t, traceNumber(n), "EVALSHA")
				if call.Parent != callersSpan || store.Parent != call.ID {
					t.Errorf("trace %d: the parents are %s and %s", n, call.Parent, store.Parent)
				}
				if !call.Tells("ratelimit.domain=shop", "ratelimit.descriptors=1", "ratelimit.code=OK") {
					t.Errorf("trace %d: the call tells %v", n, call.Attributes)
				}
				if !store.Tells("db.system.name=redis", "db.operation.name=EVALSHA", "ratelimit.lane=0", "ratelimit.requests=1") {
					t.Errorf("trace %d: the store tells %v", n, store.Attributes)
				}
				for name, want := range map[string]string{
					"service.name": "envoy-rls", "service.namespace": "edge", "service.instance.id": "pod-1", "region": "north",
				} {
					if got := call.Resource[name]; got != want {
						t.Errorf("%s is %q", name, got)
					}
				}
			}
			proctest.Eventually(t, "the spans are counted", func() bool {
				return s.Metric("envoy_rls_trace_spans_total", `result="sent"`) == 6
			})
		})
	}
}

func TestTheCallersHeadersCountForJSONToo(t *testing.T) {
	c := proctest.StartCollector(t)
	s := tracedService(t, c, "http", nil, "--store=memory")
	body := strings.NewReader(`{"domain": "shop", "descriptors": [{"entries": [{"key": "user", "value": "secret"}]}]}`)
	r, err := http.NewRequest(http.MethodPost, "http://"+s.Admin+"/json", body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("traceparent", traceParent(1, true)[1])
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	span := c.Named(t, traceNumber(1), "ShouldRateLimit")
	if span.Parent != callersSpan || strings.Contains(fmt.Sprint(span), "secret") {
		t.Errorf("the span is %+v", span)
	}
}

func TestWhatIsSampledOutHasNoSpans(t *testing.T) {
	c := proctest.StartCollector(t)
	ask := asker(t, tracedService(t, c, "grpc", []string{"TRACING_SAMPLING_RATE=0"}, "--redis="+proctest.StartRedis(t).URL()))
	ask()
	ask(traceParent(1, false)...)
	ask("b3", traceNumber(2)+"-"+callersSpan+"-0")
	ask("b3", "0")
	ask(traceParent(3, true)...) // spans come in order
	c.Named(t, traceNumber(3), "ShouldRateLimit")
	for _, s := range c.Spans() {
		if s.Trace != traceNumber(3) {
			t.Errorf("there is a span %+v", s)
		}
	}
}

func TestInCompatTheServiceHasItsOldNameAndEachReplicaAnIDOfItsOwn(t *testing.T) {
	c := proctest.StartCollector(t)
	ids := map[string]bool{}
	for n := range 2 {
		s := tracedService(t, c, "http", nil, "--compat="+compatName, "--store=memory")
		asker(t, s)(traceParent(n, true)...)
		span := c.Named(t, traceNumber(n), "ShouldRateLimit")
		if name := span.Resource["service.name"]; name != "RateLimit" {
			t.Errorf("the service's name is %q", name)
		}
		ids[span.Resource["service.instance.id"]] = true
	}
	if len(ids) != 2 || ids[""] {
		t.Errorf("the ids are %v", ids)
	}
}

func TestACollectorThatIsAwayDelaysNothing(t *testing.T) {
	for _, protocol := range []string{"http", "grpc"} {
		t.Run(protocol, func(t *testing.T) {
			nobody := fmt.Sprint("http://127.0.0.1:", proctest.FreePort(t))
			s := tracedService(t, &proctest.Collector{HTTP: nobody, GRPC: nobody}, protocol,
				[]string{"OTEL_BSP_EXPORT_TIMEOUT=50"}, "--store=memory")
			ask := asker(t, s)
			for want := range 3 {
				ask()
				proctest.Eventually(t, "spans fail", func() bool {
					return s.Metric("envoy_rls_trace_spans_total", `result="failed"`) > float64(want)
				})
			}
			ask()
			if code := s.End(); code != 0 {
				t.Errorf("it ended with %d", code)
			}
			if n := strings.Count(s.Output(), "spans can't be sent, calls are answered without"); n != 1 {
				t.Errorf("that is said %d times", n)
			}
		})
	}
}

func TestSpansThatWaitAreSentAtTheEnd(t *testing.T) {
	c := proctest.StartCollector(t)
	s := tracedService(t, c, "http", []string{"OTEL_BSP_SCHEDULE_DELAY=3600000"}, "--store=memory")
	asker(t, s)(traceParent(1, true)...)
	if code := s.End(); code != 0 || len(c.Spans()) != 1 {
		t.Errorf("it ended with %d; the spans are %v", code, c.Spans())
	}
}

func TestWithoutTracingNothingOfItRuns(t *testing.T) {
	c := proctest.StartCollector(t)
	off := proctest.StartService(t, "--rules="+writeRules(t), "--store=memory")
	on := tracedService(t, c, "grpc", nil, "--store=memory")
	for _, s := range []*proctest.Service{off, on} {
		asker(t, s)(traceParent(1, true)...)
		r, err := http.Get("http://" + s.Admin + "/debug/pprof/goroutine?debug=2")
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		stacks, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		_, metrics := s.Get("/metrics")
		for what, text := range map[string]string{"opentelemetry": string(stacks), "trace_spans_total": metrics} {
			if strings.Contains(text, what) != (s == on) {
				t.Errorf("%s is there: %t", what, s != on)
			}
		}
	}
}
