// Package decisionlog writes calls as lines of JSON: what was asked, which limit refused, and why. It never makes a call
// wait, and never writes more than so many lines a second.
package decisionlog

import (
	"context"
	"io"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

// DefaultPerSecond is the PerSecond of Options that leave it out.
const DefaultPerSecond = 100

// maxQueued is how many lines may wait for the output.
const maxQueued = 1024

// Options are a Log's settings.
type Options struct {
	// Output gets a Write for each line, from the goroutine of Run.
	Output io.Writer
	// All is for every call; otherwise those are left out that no limit refused or, if it is only tried out, would have.
	All bool
	// OneOf writes one of so many of them, by chance; 0 is 1.
	OneOf int
	// PerSecond is the most lines in a second of the clock; 0 is DefaultPerSecond.
	PerSecond int
	// Value is what a line says for the value of a descriptor's entry: what a client sent may be a secret.
	Value func(string) string
	// TraceID is the trace of a call, or "".
	TraceID func(context.Context) string
	// Failed, if it is not nil, is told of each line that could not be written.
	Failed func(error)
}

// Log writes calls. Any number of goroutines may use it.
type Log struct {
	options Options
	log     *slog.Logger
	rate    rate
	lines   queue

	leftOut, written, failed atomic.Int64
}

// Lines are what became of the lines that calls were worth.
type Lines struct {
	// LeftOut are those that OneOf or PerSecond left out, Dropped those for which too many waited.
	Written, LeftOut, Dropped, Failed int64
}

// New returns a Log. What it has to write waits for Run.
func New(o Options) *Log {
	if o.PerSecond == 0 {
		o.PerSecond = DefaultPerSecond
	}
	l := &Log{options: o, rate: rate{limit: uint64(o.PerSecond), began: time.Now()}, lines: queue{waiting: make(chan []byte, maxQueued)}}
	l.log = slog.New(slog.NewJSONHandler(&l.lines, &slog.HandlerOptions{ReplaceAttr: withoutLevel}))
	return l
}

// withoutLevel leaves out what is the same in all lines.
func withoutLevel(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.LevelKey {
		return slog.Attr{}
	}
	return a
}

// Lines are what became of lines so far.
func (l *Log) Lines() Lines {
	return Lines{
		Written: l.written.Load(), LeftOut: l.leftOut.Load(), Dropped: l.lines.dropped.Load(), Failed: l.failed.Load(),
	}
}

// Run writes until ctx ends, and then what waits.
func (l *Log) Run(ctx context.Context) {
	for {
		select {
		case line := <-l.lines.waiting:
			l.write(line)
		case <-ctx.Done():
			for len(l.lines.waiting) > 0 {
				l.write(<-l.lines.waiting)
			}
			return
		}
	}
}

func (l *Log) write(line []byte) {
	_, err := l.options.Output.Write(line)
	if err == nil {
		l.written.Add(1)
		return
	}
	l.failed.Add(1)
	if l.options.Failed != nil {
		l.options.Failed(err)
	}
}

// Observe is for rls.Options.Observe.
func (l *Log) Observe(ctx context.Context, o rls.Outcome) {
	if !l.options.All && !o.Denies() {
		return
	}
	if n := l.options.OneOf; n > 1 && rand.IntN(n) != 0 || !l.rate.allow(o.Ended) {
		l.leftOut.Add(1)
		return
	}
	l.log.LogAttrs(ctx, slog.LevelInfo, says(&o), l.attributes(ctx, &o)...)
}

// says is the line's message.
func says(o *rls.Outcome) string {
	switch {
	case o.Code != codes.OK:
		return "failed"
	case o.OverLimit:
		return "refused"
	case o.Denies():
		return "would be refused"
	}
	return "admitted"
}

// attributes are the line's, but for time and message; what says nothing is left out.
func (l *Log) attributes(ctx context.Context, o *rls.Outcome) []slog.Attr {
	list := []slog.Attr{slog.String("domain", cut(o.Sent(), maxDomain)), slog.String("code", code(o))}
	if j, ok := o.Strictest(); ok {
		list = append(list, slog.String("rule", j.Path))
		if j.Name != j.Path {
			list = append(list, slog.String("limit", j.Name))
		}
		if j.Known {
			list = append(list, slog.Uint64("remaining", uint64(j.Remaining)), slog.Int64("reset", int64(j.Wait/time.Second)))
		}
		list = append(list, slog.Int64("hits", j.Cost))
	}
	if names := o.WouldRefuse(); names != nil {
		list = append(list, slog.Any("would_deny", names))
	}
	list = append(list, slog.Any("descriptors", l.descriptors(o)))
	if policies := o.Policies(); policies != nil {
		names := make([]string, len(policies))
		for i, p := range policies {
			names[i] = p.String()
		}
		list = append(list, slog.String("degraded", strings.Join(names, ",")))
	}
	if why := o.StoreFailure(); why != "" {
		list = append(list, slog.String("reason", why))
	}
	if id := l.options.TraceID(ctx); id != "" {
		list = append(list, slog.String("trace_id", id))
	}
	return list
}

// code is the answer's code, or the error's.
func code(o *rls.Outcome) string {
	if o.OverLimit {
		return "OVER_LIMIT"
	}
	return o.Code.String()
}
