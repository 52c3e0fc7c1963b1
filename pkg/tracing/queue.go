package tracing

import (
	"context"
	"sync/atomic"

	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// Spans are how many spans the collector took, could not be sent, and found the queue full.
type Spans struct {
	Sent, Failed, Dropped int64
}

// queue bounds and counts what waits, before a batch processor that has room for as many and so never drops any: it
// doesn't tell how many it drops.
type queue struct {
	sdk.SpanProcessor

	limit                          int64
	waiting, sent, failed, dropped atomic.Int64
}

// OnEnd implements sdk.SpanProcessor.
func (q *queue) OnEnd(s sdk.ReadOnlySpan) {
	if q.waiting.Add(1) > q.limit {
		q.waiting.Add(-1)
		q.dropped.Add(1)
		return
	}
	q.SpanProcessor.OnEnd(s)
}

// exporter sends spans, one batch at a time, and tells when that begins or ceases to fail.
type exporter struct {
	sdk.SpanExporter

	queue   *queue
	changed func(err error)
	failing bool
}

// ExportSpans implements sdk.SpanExporter. It keeps its errors, of which the library would tell batch by batch.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	n := int64(len(spans))
	e.queue.waiting.Add(-n)
	if err != nil {
		e.queue.failed.Add(n)
	} else {
		e.queue.sent.Add(n)
	}
	if failing := err != nil; failing != e.failing {
		e.failing = failing
		if e.changed != nil {
			e.changed(err)
		}
	}
	return nil
}
