package tracing

import (
	"context"
	"net/http"

	"go.opentelemetry.io/contrib/propagators/b3"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/metadata"
)

// maxHeader is the longest header that is read, in bytes: a span keeps the caller's tracestate, of which W3C asks for no
// more to be kept.
const maxHeader = 512

// carrier finds a header by its name.
type carrier func(name string) string

// Get implements propagation.TextMapCarrier.
func (c carrier) Get(name string) string {
	if v := c(name); len(v) <= maxHeader {
		return v
	}
	return ""
}

// Set implements propagation.TextMapCarrier: nothing is sent on.
func (carrier) Set(string, string) {}

// Keys implements propagation.TextMapCarrier.
func (carrier) Keys() []string { return nil }

// extract adds to ctx the caller's span and baggage. A header is looked for among all others, so B3's are read where there
// is nothing of W3C, and something of B3.
func extract(ctx context.Context, c carrier) context.Context {
	ctx = propagation.Baggage{}.Extract(ctx, c)
	ctx = propagation.TraceContext{}.Extract(ctx, c)
	if trace.SpanContextFromContext(ctx).IsValid() || c.Get("b3") == "" && c.Get("x-b3-traceid") == "" {
		return ctx
	}
	return b3.New().Extract(ctx, c)
}

// incoming is extract from the metadata of a gRPC call.
func incoming(ctx context.Context) context.Context {
	return extract(ctx, func(name string) string {
		if v := metadata.ValueFromIncomingContext(ctx, name); len(v) > 0 {
			return v[0]
		}
		return ""
	})
}

// HTTP returns h with the caller's span and baggage in its requests' contexts, for Call to continue.
func HTTP(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(extract(r.Context(), r.Header.Get)))
	})
}

// ID is the trace that a call belongs to, in 32 hexadecimal digits, or "" if it is in none. Where Call or HTTP have put it into
// ctx, that costs next to nothing; else it is read from the metadata of the gRPC call, so that it is there without a Tracer,
// too.
func ID(ctx context.Context) string {
	span := trace.SpanContextFromContext(ctx)
	if !span.IsValid() {
		span = trace.SpanContextFromContext(incoming(ctx))
	}
	if !span.IsValid() {
		return ""
	}
	return span.TraceID().String()
}
