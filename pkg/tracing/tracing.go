// Package tracing makes OpenTelemetry spans of calls, and sends them to a collector by OTLP. It never makes a call wait:
// spans are queued, and dropped while the queue is full.
package tracing

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	grpccodes "google.golang.org/grpc/codes"

	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

// DefaultQueue is the Queue of Options that leave it out.
const DefaultQueue = 2048

// Options are a Tracer's settings. Where the collector is, and how it is reached, is read from the variables
// OTEL_EXPORTER_OTLP_*; further attributes of the service from OTEL_RESOURCE_ATTRIBUTES.
type Options struct {
	// GRPC sends spans by OTLP over gRPC; otherwise it is over HTTP.
	GRPC bool
	// Service, Namespace, Instance and Version are attributes of every span. An empty Instance is a random one.
	Service, Namespace, Instance, Version string
	// SamplingRate is the part, from 0 to 1, that is sampled of the calls whose caller has not decided that.
	SamplingRate float64
	// Queue is how many spans may wait or be on their way; 0 is DefaultQueue.
	Queue int
	// Changed, if it is not nil, is told the error when spans can't be sent any more, and nil when they can again. It is
	// not told of two things at once.
	Changed func(err error)
}

// Tracer makes spans. Any number of goroutines may use it, until Shutdown.
type Tracer struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	queue    *queue
	exporter *exporter

	server, client []trace.SpanStartOption
}

// New returns a Tracer, without connecting to the collector. The error is about the options, or the variables.
func New(o Options) (*Tracer, error) {
	if o.Queue == 0 {
		o.Queue = DefaultQueue
	}
	about, err := o.resource()
	if err != nil {
		return nil, fmt.Errorf("attributes of the service (OTEL_RESOURCE_ATTRIBUTES): %w", err)
	}
	var inner sdk.SpanExporter
	if o.GRPC {
		inner, err = otlptracegrpc.New(context.Background())
	} else {
		inner, err = otlptracehttp.New(context.Background())
	}
	if err != nil {
		return nil, fmt.Errorf("sending spans (OTEL_EXPORTER_OTLP_*): %w", err)
	}
	q := &queue{limit: int64(o.Queue)}
	e := &exporter{SpanExporter: inner, queue: q, changed: o.Changed}
	q.SpanProcessor = sdk.NewBatchSpanProcessor(e, sdk.WithMaxQueueSize(o.Queue))
	provider := sdk.NewTracerProvider(
		sdk.WithResource(about),
		sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(o.SamplingRate))),
		sdk.WithSpanProcessor(q),
	)
	return &Tracer{
		provider: provider, tracer: provider.Tracer("github.com/envoy-rls/envoy-rls"), queue: q, exporter: e,
		server: []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindServer)},
		client: []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindClient)},
	}, nil
}

func (o *Options) resource() (*resource.Resource, error) {
	if o.Instance == "" {
		o.Instance = uuid.NewString()
	}
	attributes := []attribute.KeyValue{
		attribute.String("service.name", o.Service),
		attribute.String("service.instance.id", o.Instance),
		attribute.String("service.version", o.Version),
	}
	if o.Namespace != "" {
		attributes = append(attributes, attribute.String("service.namespace", o.Namespace))
	}
	return resource.New(context.Background(),
		resource.WithFromEnv(), resource.WithTelemetrySDK(), resource.WithAttributes(attributes...))
}

// Spans are what became of the spans that have ended and wait no longer.
func (t *Tracer) Spans() Spans {
	return Spans{Sent: t.queue.sent.Load(), Failed: t.queue.failed.Load(), Dropped: t.queue.dropped.Load()}
}

// Shutdown sends what is queued, and ends the Tracer, at the latest when ctx ends.
func (t *Tracer) Shutdown(ctx context.Context) error {
	err := t.provider.Shutdown(ctx)
	if ctx.Err() != nil {
		_ = t.exporter.Shutdown(ctx) // so that what is on its way is given up
	}
	return err
}

// Call is rls.Options.Trace: a span ShouldRateLimit, which continues the trace of the caller.
func (t *Tracer) Call(ctx context.Context) (context.Context, func(rls.Traced)) {
	ctx = incoming(ctx)
	if caller := trace.SpanContextFromContext(ctx); caller.IsValid() && !caller.IsSampled() {
		return ctx, nil // as the sampler would say, at a higher price
	}
	traced, span := t.tracer.Start(ctx, "ShouldRateLimit", t.server...)
	if !span.IsRecording() {
		return ctx, nil
	}
	return traced, func(c rls.Traced) {
		span.SetAttributes(describe(&c)...)
		if c.Code != grpccodes.OK {
			span.SetStatus(codes.Error, c.Code.String())
		}
		span.End()
	}
}

func describe(c *rls.Traced) []attribute.KeyValue {
	code := c.Code.String()
	if c.OverLimit {
		code = "OVER_LIMIT"
	}
	list := append(make([]attribute.KeyValue, 0, 6),
		attribute.String("ratelimit.domain", c.Domain),
		attribute.Int("ratelimit.descriptors", c.Descriptors),
		attribute.String("ratelimit.code", code))
	if c.DeniedBy != "" {
		list = append(list, attribute.String("ratelimit.denied_by", c.DeniedBy))
	}
	if c.StoreFailure != "" {
		list = append(list, attribute.String("ratelimit.store_failure", c.StoreFailure))
	}
	if len(c.Policies) > 0 {
		names := make([]string, len(c.Policies))
		for i, p := range c.Policies {
			names[i] = p.String()
		}
		list = append(list, attribute.StringSlice("ratelimit.on_store_failure", names))
	}
	return list
}

// StoreCall is redisstore.Options.Trace: a span EVALSHA in a call that has a span. Of an error it tells the reason only,
// since its text is the server's.
func (t *Tracer) StoreCall(ctx context.Context, lane string) func(requests int, err error) {
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return nil
	}
	_, span := t.tracer.Start(ctx, "EVALSHA", t.client...)
	return func(requests int, err error) {
		span.SetAttributes(
			attribute.String("db.system.name", "redis"),
			attribute.String("db.operation.name", "EVALSHA"),
			attribute.String("ratelimit.lane", lane),
			attribute.Int("ratelimit.requests", requests),
		)
		if err != nil {
			reason := failureReason(err)
			span.SetAttributes(attribute.String("error.type", reason))
			span.SetStatus(codes.Error, reason)
		}
		span.End()
	}
}

func failureReason(err error) string {
	var f interface{ FailureReason() string }
	if errors.As(err, &f) {
		return f.FailureReason()
	}
	return "other"
}
