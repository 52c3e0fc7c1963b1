package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/decisionlog"
	"github.com/envoy-rls/envoy-rls/pkg/rls"
	"github.com/envoy-rls/envoy-rls/pkg/top"
	"github.com/envoy-rls/envoy-rls/pkg/tracing"
)

// decisions are what looks at single calls.
type decisions struct {
	top      *top.Top
	redactor *redactor
	log      *decisionlog.Log // nil: there is none

	output  io.WriteCloser
	cancel  context.CancelFunc
	written chan struct{} // closed at the log's end
}

// openDecisions makes what looks at calls. Nothing is written yet.
func (srv *server) openDecisions() (err error) {
	s, d := &srv.settings.Decisions, &srv.decisions
	d.top = top.New(time.Now())
	if d.redactor, err = newRedactor(s.RedactKey); err != nil || s.Log == logsNone {
		return err
	}
	d.output = os.Stdout
	if s.To != "stdout" {
		if d.output, err = os.OpenFile(s.To, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o640); err != nil {
			return fmt.Errorf("--decision-log-to (DECISION_LOG_TO): %w", err)
		}
	}
	value := d.redactor.value
	if s.LogValues {
		value = func(v string) string { return v }
	}
	var failures sparing
	d.log = decisionlog.New(decisionlog.Options{
		Output: d.output, All: s.Log == logsAll, OneOf: s.Sample.oneOf, PerSecond: s.Sample.perSecond, Value: value, TraceID: tracing.ID,
		Failed: func(err error) {
			if missed, due := failures.next(); due {
				srv.log.Error("the decision log can't be written", "error", err, "more_since_last_line", missed)
			}
		},
	})
	lines := srv.metrics.CounterFunc("decision_log_lines_total", "Lines of the decision log, and those that calls were worth and that are not in it.", "result")
	lines("written", func() float64 { return float64(d.log.Lines().Written) })
	lines("left_out", func() float64 { return float64(d.log.Lines().LeftOut) })
	lines("dropped", func() float64 { return float64(d.log.Lines().Dropped) })
	lines("failed", func() float64 { return float64(d.log.Lines().Failed) })
	return nil
}

// observeCalls has calls looked at.
func (srv *server) observeCalls(o rls.Options) rls.Options {
	d := &srv.decisions
	o.Observe = func(_ context.Context, call rls.Outcome) { d.top.Observe(call) }
	if d.log != nil {
		o.Observe = func(ctx context.Context, call rls.Outcome) {
			d.top.Observe(call)
			d.log.Observe(ctx, call)
		}
	}
	return o
}

// storeCalled is told of each call of Redis, for redisstore.Options.Called.
func (srv *server) storeCalled(requests int, waited, took time.Duration) {
	srv.metrics.StoreCalled(requests, waited, took)
	srv.decisions.top.StoreCalled(time.Now(), took)
}

// start writes the log until stop.
func (d *decisions) start() {
	if d.log == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	d.cancel, d.written = cancel, make(chan struct{})
	go func() {
		d.log.Run(ctx)
		close(d.written)
	}()
}

// stop writes what waits, and gives an output that is stuck a moment.
func (d *decisions) stop() {
	if d.log == nil {
		return
	}
	d.cancel()
	select {
	case <-d.written:
		_ = d.output.Close() // each line was written
	case <-time.After(time.Second):
	}
}
