package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"

	"github.com/envoy-rls/envoy-rls/pkg/redisstore"
	"github.com/envoy-rls/envoy-rls/pkg/rls"
	"github.com/envoy-rls/envoy-rls/pkg/tracing"
)

// openTracing makes what sends spans, if there is to be such a thing.
func (srv *server) openTracing() error {
	s := &srv.settings.Tracing
	if !s.Enabled {
		return nil
	}
	words := &libraryWords{log: srv.log}
	otel.SetErrorHandler(words)
	otel.SetLogger(logr.New(words))
	if name := s.unusableEndpoint(); name != "" {
		srv.log.Error("this is not a URL, and spans don't get there", "variable", name, "mend", "write http://collector:4318, with the scheme")
	}
	o := s.options()
	o.Changed = func(err error) {
		if err != nil {
			srv.log.Warn("spans can't be sent, calls are answered without", "error", fmt.Sprintf("%.500s", err)) // of the collector's answer
			return
		}
		srv.log.Info("spans are sent again")
	}
	tracer, err := tracing.New(o)
	if err != nil {
		return err
	}
	srv.tracer = tracer
	spans := srv.metrics.CounterFunc("trace_spans_total", "Spans that the collector took, that could not be sent, and that found the queue full.", "result")
	spans("sent", func() float64 { return float64(tracer.Spans().Sent) })
	spans("failed", func() float64 { return float64(tracer.Spans().Failed) })
	spans("dropped", func() float64 { return float64(tracer.Spans().Dropped) })
	srv.log.Info("tracing", "protocol", string(s.ExporterProtocol), "sampling_rate", float64(s.SamplingRate))
	return nil
}

// traceCalls has spans made of calls.
func (srv *server) traceCalls(o rls.Options) rls.Options {
	if srv.tracer != nil {
		o.Trace = srv.tracer.Call
	}
	return o
}

// traceStore has spans made of what is asked of a Redis.
func (srv *server) traceStore(o *redisstore.Options, lanes string) {
	if srv.tracer != nil {
		o.Trace = func(ctx context.Context, lane string) func(int, error) { return srv.tracer.StoreCall(ctx, lanes+lane) }
	}
}

// json serves /json.
func (srv *server) json() http.Handler {
	if srv.tracer == nil {
		return srv.service.JSON()
	}
	return tracing.HTTP(srv.service.JSON())
}

// flushPatience is how long the service's end waits for a collector at most.
const flushPatience = 5 * time.Second

// flushTraces sends the spans that wait, until ctx ends or a signal comes.
func (srv *server) flushTraces(ctx context.Context, signals <-chan os.Signal) {
	if srv.tracer == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, flushPatience)
	defer cancel()
	flushed := make(chan error, 1)
	go func() { flushed <- srv.tracer.Shutdown(ctx) }()
	select {
	case err := <-flushed:
		if err != nil {
			srv.log.Warn("spans could not be sent before the end", "error", err)
		}
	case <-signals:
	}
}

// libraryWords gives the tracing library's own words to the log, what is the same only once, and without the values of
// variables that it quotes, which may be secrets.
type libraryWords struct {
	log *slog.Logger

	mu   sync.Mutex
	last string
}

// Handle implements otel.ErrorHandler.
func (w *libraryWords) Handle(err error) { w.Error(err, "tracing") }

// Error implements logr.LogSink.
func (w *libraryWords) Error(err error, says string, _ ...any) {
	var quoting *url.Error
	if errors.As(err, &quoting) {
		err = quoting.Err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if text := says + err.Error(); text != w.last {
		w.last = text
		w.log.Warn("tracing library", "says", says, "error", err)
	}
}

// Init implements logr.LogSink.
func (*libraryWords) Init(logr.RuntimeInfo) {}

// Enabled implements logr.LogSink: its details are not for operators.
func (*libraryWords) Enabled(int) bool { return false }

// Info implements logr.LogSink.
func (*libraryWords) Info(int, string, ...any) {}

// WithValues implements logr.LogSink.
func (w *libraryWords) WithValues(...any) logr.LogSink { return w }

// WithName implements logr.LogSink.
func (w *libraryWords) WithName(string) logr.LogSink { return w }
