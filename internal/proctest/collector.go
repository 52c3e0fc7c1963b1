package proctest

import (
	"context"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// Span is one that a Collector got.
type Span struct {
	Name, Trace, ID, Parent string // ids are in hexadecimal digits
	Kind                    tracepb.Span_SpanKind
	// Failed is the message of a span's status if that is an error, or "".
	Failed string
	// Attributes and Resource, the attributes of who made the span, are in words; lists have commas.
	Attributes, Resource map[string]string
}

// Collector takes spans by OTLP, over gRPC and over HTTP.
type Collector struct {
	collectorpb.UnimplementedTraceServiceServer

	GRPC, HTTP string // URLs

	mu      sync.Mutex
	spans   []Span
	waiting chan struct{} // until it is closed, exports don't end; nil: they do
}

// StartCollector starts a Collector that ends with the test.
func StartCollector(t testing.TB) *Collector {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &Collector{GRPC: "http://" + l.Addr().String()}
	overGRPC := grpc.NewServer()
	collectorpb.RegisterTraceServiceServer(overGRPC, c)
	go func() { _ = overGRPC.Serve(l) }() // until Stop
	t.Cleanup(overGRPC.Stop)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/traces", c.take)
	overHTTP := httptest.NewServer(mux)
	t.Cleanup(overHTTP.CloseClientConnections)
	t.Cleanup(overHTTP.Close)
	c.HTTP = overHTTP.URL
	return c
}

// Stall has exports wait until resume is called, which the test's end does too.
func (c *Collector) Stall(t testing.TB) (resume func()) {
	waiting := make(chan struct{})
	c.mu.Lock()
	c.waiting = waiting
	c.mu.Unlock()
	resume = sync.OnceFunc(func() { close(waiting) })
	t.Cleanup(resume)
	return resume
}

// Export implements the service.
func (c *Collector) Export(
	_ context.Context, req *collectorpb.ExportTraceServiceRequest,
) (*collectorpb.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	waiting := c.waiting
	c.mu.Unlock()
	if waiting != nil {
		<-waiting
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, from := range req.GetResourceSpans() {
		resource := inWords(from.GetResource().GetAttributes())
		for _, scope := range from.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				c.spans = append(c.spans, span(s, resource))
			}
		}
	}
	return &collectorpb.ExportTraceServiceResponse{}, nil
}

// take is Export over HTTP.
func (c *Collector) take(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	req := &collectorpb.ExportTraceServiceRequest{}
	if err != nil || proto.Unmarshal(body, req) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	_, _ = c.Export(r.Context(), req) // it never fails
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func span(s *tracepb.Span, resource map[string]string) Span {
	got := Span{
		Name: s.GetName(), Trace: hex.EncodeToString(s.GetTraceId()), ID: hex.EncodeToString(s.GetSpanId()),
		Parent: hex.EncodeToString(s.GetParentSpanId()), Kind: s.GetKind(),
		Attributes: inWords(s.GetAttributes()), Resource: resource,
	}
	if s.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR {
		got.Failed = s.GetStatus().GetMessage()
	}
	return got
}

func inWords(list []*commonpb.KeyValue) map[string]string {
	m := map[string]string{}
	for _, a := range list {
		m[a.GetKey()] = word(a.GetValue())
	}
	return m
}

func word(v *commonpb.AnyValue) string {
	switch v.GetValue().(type) {
	case *commonpb.AnyValue_IntValue:
		return strconv.FormatInt(v.GetIntValue(), 10)
	case *commonpb.AnyValue_ArrayValue:
		var words []string
		for _, e := range v.GetArrayValue().GetValues() {
			words = append(words, word(e))
		}
		return strings.Join(words, ",")
	}
	return v.GetStringValue()
}

// Spans are those that came so far.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.spans)
}

// Named waits for a span of a trace, or of any if trace is "", with a name.
func (c *Collector) Named(t testing.TB, trace, name string) (found Span) {
	t.Helper()
	Eventually(t, "the span "+name+" of the trace "+trace, func() bool {
		spans := c.Spans()
		i := slices.IndexFunc(spans, func(s Span) bool { return s.Name == name && (trace == "" || s.Trace == trace) })
		if i >= 0 {
			found = spans[i]
		}
		return i >= 0
	})
	return found
}

// Tells reports whether the span has attributes, and no others, each as name=value.
func (s *Span) Tells(attributes ...string) bool {
	var own []string
	for name, value := range s.Attributes {
		own = append(own, name+"="+value)
	}
	slices.Sort(own)
	slices.Sort(attributes)
	return slices.Equal(own, attributes)
}
