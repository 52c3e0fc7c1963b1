package tracing

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

const (
	traceID = "0af7651916cd43dd8448eb211c80319c"
	spanID  = "b7ad6b7169203331"
	otherID = "4bf92f3577b34da6a3ce929d0e0e4736"
)

// open makes a Tracer that sends to a collector at once.
func open(t *testing.T, c *proctest.Collector, o Options) *Tracer {
	t.Helper()
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
	return openSlow(t, c, o)
}

// openSlow makes one that sends when the test's environment says.
func openSlow(t *testing.T, c *proctest.Collector, o Options) *Tracer {
	t.Helper()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.HTTP)
	if o.GRPC {
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.GRPC)
	}
	tracer, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = tracer.Shutdown(ctx) // a test may have done so
	})
	return tracer
}

func called(headers ...string) context.Context {
	return metadata.NewIncomingContext(context.Background(), metadata.Pairs(headers...))
}

func TestACallContinuesItsCallersTrace(t *testing.T) {
	const w3c, single = "00-" + traceID + "-" + spanID + "-01", traceID + "-" + spanID + "-1"
	tracer := open(t, proctest.StartCollector(t), Options{SamplingRate: 1})
	for _, c := range []struct {
		name    string
		headers []string
		id      string // "" is a new trace
		sampled bool
	}{
		{"none", nil, "", true},
		{"W3C", []string{"traceparent", w3c}, traceID, true},
		{"W3C, sampled out", []string{"traceparent", strings.TrimSuffix(w3c, "1") + "0"}, traceID, false},
		{"W3C, with a tracestate too long to keep", []string{"traceparent", w3c, "tracestate", "a=" + strings.Repeat("x", maxHeader)}, traceID, true},
		{"W3C, not to be read", []string{"traceparent", "00-" + traceID}, "", true},
		{"B3 single", []string{"b3", single}, traceID, true},
		{"B3 single, sampled out", []string{"b3", traceID + "-" + spanID + "-0"}, traceID, false},
		{"B3 multi", []string{"x-b3-traceid", traceID, "x-b3-spanid", spanID, "x-b3-sampled", "1"}, traceID, true},
		{"B3 multi, sampled out", []string{"x-b3-traceid", traceID, "x-b3-spanid", spanID, "x-b3-sampled", "0"}, traceID, false},
		{"B3 of 64 bits", []string{"b3", spanID + "-" + spanID + "-1"}, "0000000000000000" + spanID, true},
		{"W3C beside B3", []string{"traceparent", w3c, "b3", otherID + "-" + spanID + "-0"}, traceID, true},
	} {
		ctx, end := tracer.Call(called(c.headers...))
		span := trace.SpanContextFromContext(ctx)
		if (end != nil) != c.sampled || span.IsSampled() != c.sampled {
			t.Errorf("%s: sampled is %t", c.name, end != nil)
		}
		if id := span.TraceID().String(); c.id != "" && id != c.id {
			t.Errorf("%s: the trace is %s", c.name, id)
		}
		if len(span.TraceState().String()) > maxHeader {
			t.Errorf("%s: the tracestate is kept", c.name)
		}
		if id := ID(called(c.headers...)); id != c.id {
			t.Errorf("%s: without a Tracer, the id is %q", c.name, id)
		}
		if id := ID(ctx); c.id != "" && id != c.id || c.sampled && len(id) != 32 {
			t.Errorf("%s: the id is %q", c.name, id)
		}
	}
}

func TestTheHeadersOfAnHTTPRequestAreRead(t *testing.T) {
	tracer := open(t, proctest.StartCollector(t), Options{SamplingRate: 0})
	id, traced, team := "", false, ""
	h := HTTP(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		ctx, end := tracer.Call(r.Context())
		id, traced, team = ID(ctx), end != nil, baggage.FromContext(ctx).Member("team").Value()
	}))
	r := httptest.NewRequest(http.MethodPost, "/json", nil)
	r.Header.Set("X-B3-TraceId", traceID)
	r.Header.Set("X-B3-SpanId", spanID)
	r.Header.Set("X-B3-Sampled", "1")
	r.Header.Set("Baggage", "team=web")
	h.ServeHTTP(httptest.NewRecorder(), r)
	if id != traceID || !traced || team != "web" {
		t.Errorf("the trace is %q, sampled: %t; the team is %q", id, traced, team)
	}
}

func TestOfTheCallsThatNobodyHasDecidedAPartIsSampled(t *testing.T) {
	c := proctest.StartCollector(t)
	for _, rate := range []struct {
		part        float64
		least, most int
	}{{0, 0, 0}, {0.5, 350, 650}, {1, 1000, 1000}} {
		tracer, n := open(t, c, Options{SamplingRate: rate.part}), 0
		for range 1000 {
			if _, end := tracer.Call(called()); end != nil {
				n++
			}
		}
		if n < rate.least || n > rate.most {
			t.Errorf("at a rate of %v, %d of 1000 are sampled", rate.part, n)
		}
	}
}

// failure is an error that tells its reason, as those of redisstore do.
type failure struct{}

func (failure) Error() string         { return "redis: OOM while writing user_42" }
func (failure) FailureReason() string { return "oom" }

func TestSpansTellWhatBecameOfACall(t *testing.T) {
	for _, overGRPC := range []bool{false, true} {
		c := proctest.StartCollector(t)
		tracer := open(t, c, Options{GRPC: overGRPC, SamplingRate: 1, Service: "limits", Namespace: "edge", Instance: "a", Version: "v1"})
		ctx, end := tracer.Call(called("b3", traceID+"-"+spanID+"-1"))
		tracer.StoreCall(ctx, "3")(17, nil)
		end(rls.Traced{Domain: "shop", Descriptors: 2, OverLimit: true, DeniedBy: "user/path"})
		ctx, end = tracer.Call(called("b3", otherID+"-"+spanID+"-1"))
		tracer.StoreCall(ctx, "3")(0, errors.Join(failure{}))
		end(rls.Traced{
			Descriptors: 1, Code: codes.Unavailable, StoreFailure: "oom",
			Policies: []limiter.FailurePolicy{limiter.FailError, limiter.FailAllow},
		})
		call, store := c.Named(t, traceID, "ShouldRateLimit"), c.Named(t, traceID, "EVALSHA")
		if call.Parent != spanID || store.Parent != call.ID {
			t.Errorf("the parents are %s and %s", call.Parent, store.Parent)
		}
		if call.Failed != "" || !call.Tells("ratelimit.domain=shop", "ratelimit.descriptors=2", "ratelimit.code=OVER_LIMIT", "ratelimit.denied_by=user/path") {
			t.Errorf("the call's span is %+v", call)
		}
		if store.Failed != "" || !store.Tells("db.system.name=redis", "db.operation.name=EVALSHA", "ratelimit.lane=3", "ratelimit.requests=17") {
			t.Errorf("the store's span is %+v", store)
		}
		call, store = c.Named(t, otherID, "ShouldRateLimit"), c.Named(t, otherID, "EVALSHA")
		if call.Failed != "Unavailable" || !call.Tells("ratelimit.domain=", "ratelimit.descriptors=1", "ratelimit.code=Unavailable",
			"ratelimit.store_failure=oom", "ratelimit.on_store_failure=error,allow") {
			t.Errorf("the failed call's span is %+v", call)
		}
		if store.Failed != "oom" || store.Attributes["error.type"] != "oom" {
			t.Errorf("the failed store's span is %+v", store)
		}
		for name, want := range map[string]string{
			"service.name": "limits", "service.namespace": "edge", "service.instance.id": "a", "service.version": "v1",
		} {
			if got := call.Resource[name]; got != want {
				t.Errorf("%s is %q", name, got)
			}
		}
	}
}

func TestACallWithoutASpanHasNoneInTheStore(t *testing.T) {
	tracer := open(t, proctest.StartCollector(t), Options{})
	ctx, _ := tracer.Call(called("traceparent", "00-"+traceID+"-"+spanID+"-00"))
	if tracer.StoreCall(ctx, "0") != nil || tracer.StoreCall(context.Background(), "0") != nil {
		t.Error("the store has a span")
	}
}

// TestACallThatIsSampledOutCostsLittle: the context with the caller's span, and what headers are found with.
func TestACallThatIsSampledOutCostsLittle(t *testing.T) {
	tracer := open(t, proctest.StartCollector(t), Options{SamplingRate: 1})
	ctx := called("traceparent", "00-"+traceID+"-"+spanID+"-00", ":authority", "limits", "user-agent", "Envoy", "te", "trailers")
	if n := testing.AllocsPerRun(100, func() { tracer.Call(ctx) }); n > 8 {
		t.Errorf("%v allocations", n)
	}
}

func TestSpansBeyondTheQueueAreDroppedAndCounted(t *testing.T) {
	c := proctest.StartCollector(t)
	resume := c.Stall(t)
	tracer := open(t, c, Options{SamplingRate: 1, Queue: 8})
	began := time.Now()
	for range 100 {
		_, end := tracer.Call(called())
		end(rls.Traced{})
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("calls waited for %s", took)
	}
	if s := tracer.Spans(); s != (Spans{Dropped: 92}) {
		t.Errorf("of 100 spans, while nobody takes them: %+v", s)
	}
	resume()
	proctest.Eventually(t, "the others are sent", func() bool { return tracer.Spans() == Spans{Sent: 8, Dropped: 92} })
	if n := len(c.Spans()); n != 8 {
		t.Errorf("the collector got %d", n)
	}
}

func TestACollectorThatIsAwayIsToldOfOnce(t *testing.T) {
	for _, overGRPC := range []bool{false, true} {
		t.Setenv("OTEL_BSP_EXPORT_TIMEOUT", "50")
		changes := make(chan error, 100)
		c := proctest.StartCollector(t)
		resume := c.Stall(t)
		tracer := open(t, c, Options{GRPC: overGRPC, SamplingRate: 1, Changed: func(err error) { changes <- err }})
		made := int64(0)
		span := func() {
			made++
			_, end := tracer.Call(called())
			end(rls.Traced{})
		}
		for want := range int64(3) {
			span()
			proctest.Eventually(t, "the export fails", func() bool { return tracer.Spans().Failed > want })
		}
		resume()
		proctest.Eventually(t, "spans are sent again", func() bool {
			s := tracer.Spans()
			if s.Sent == 0 && s.Failed == made { // one at a time: none may fail behind the one that is sent
				span()
			}
			return s.Sent > 0
		})
		if err := <-changes; err == nil {
			t.Error("a failure was not told of")
		}
		if err := <-changes; err != nil {
			t.Errorf("another failure was told of: %v", err)
		}
		if n := len(changes); n != 0 {
			t.Errorf("%d more changes were told of", n)
		}
	}
}

func TestShutdownSendsWhatWaitsAndEndsInTime(t *testing.T) {
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "3600000")
	for _, overGRPC := range []bool{false, true} {
		c := proctest.StartCollector(t)
		tracer := openSlow(t, c, Options{GRPC: overGRPC, SamplingRate: 1})
		_, end := tracer.Call(called())
		end(rls.Traced{})
		if err := tracer.Shutdown(t.Context()); err != nil || len(c.Spans()) != 1 {
			t.Errorf("%d spans arrived; the error is %v", len(c.Spans()), err)
		}
		c.Stall(t)
		tracer = openSlow(t, c, Options{GRPC: overGRPC, SamplingRate: 1})
		_, end = tracer.Call(called())
		end(rls.Traced{})
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		began := time.Now()
		if err := tracer.Shutdown(ctx); err == nil {
			t.Error("there is no error though the collector did not answer")
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("it took %s", took)
		}
	}
}

func FuzzIncoming(f *testing.F) {
	f.Add("00-"+traceID+"-"+spanID+"-01", "a=b,c=d", traceID+"-"+spanID+"-d", "team=web;x")
	f.Add("cc-"+traceID+"-"+spanID+"-01-what-comes-later", "=", "0", "%zz")
	f.Add("", "", spanID+"-"+spanID, "=")
	id := regexp.MustCompile(`^([0-9a-f]{32})?$`)
	f.Fuzz(func(t *testing.T, parent, state, b3, bags string) {
		ctx := called("traceparent", parent, "tracestate", state, "b3", b3, "baggage", bags,
			"x-b3-traceid", parent, "x-b3-spanid", b3, "x-b3-sampled", state, "x-b3-flags", bags, "x-b3-parentspanid", b3)
		if got := ID(ctx); !id.MatchString(got) {
			t.Errorf("the id is %q", got)
		}
		if kept := trace.SpanContextFromContext(incoming(ctx)).TraceState().String(); len(kept) > maxHeader {
			t.Errorf("%d bytes of tracestate are kept", len(kept))
		}
	})
}
