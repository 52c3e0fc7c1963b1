package decisionlog_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/envoy-rls/envoy-rls/pkg/decisionlog"
	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/memstore"
	"github.com/envoy-rls/envoy-rls/pkg/rls"
	"github.com/envoy-rls/envoy-rls/pkg/storetest"
)

const rules = `
domain: shop
descriptors:
  - {key: user, rate_limit: {unit: hour, requests_per_unit: 2}}
  - {key: none, rate_limit: {name: closed, unit: hour, requests_per_unit: 0}}
  - {key: trial, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 0}}
`

// logged is a service with a log.
type logged struct {
	t       testing.TB
	service *rls.Service
	log     *decisionlog.Log
	clock   *storetest.Clock
}

func start(t testing.TB, o decisionlog.Options) *logged {
	t.Helper()
	if o.Value == nil {
		o.Value = func(string) string { return "~" }
	}
	o.TraceID = func(context.Context) string { return "" }
	l := &logged{t: t, log: decisionlog.New(o), clock: &storetest.Clock{}}
	l.clock.Set(time.Now().Truncate(time.Hour).Add(90 * time.Minute)) // later than the log's beginning
	l.service = rls.New(memstore.New(memstore.Options{Now: l.clock.Now}), rls.Options{Now: l.clock.Now, Observe: l.log.Observe})
	compiled, problems := descriptors.Compile([]descriptors.File{{Name: "r.yaml", Data: []byte(rules)}}, descriptors.Options{})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	l.service.SetRules(compiled)
	return l
}

// ask asks for descriptors of one entry each, as key=value.
func (l *logged) ask(entries ...string) {
	l.t.Helper()
	req := &ratelimit.RateLimitRequest{Domain: "shop"}
	for _, text := range entries {
		key, value, _ := strings.Cut(text, "=")
		req.Descriptors = append(req.Descriptors, &common.RateLimitDescriptor{
			Entries: []*common.RateLimitDescriptor_Entry{{Key: key, Value: value}},
		})
	}
	_, _ = l.service.ShouldRateLimit(context.Background(), req) // an error is an outcome, too
}

// flush writes what waits.
func (l *logged) flush() {
	ended, end := context.WithCancel(context.Background())
	end()
	l.log.Run(ended)
}

func TestALineTellsWhatBecameOfACall(t *testing.T) {
	for _, c := range []struct {
		ask  []string
		line string // without its time
	}{
		{[]string{"user=ann", "other=x"}, `"msg":"admitted","domain":"shop","code":"OK","rule":"shop.user","remaining":1,"reset":1800,"hits":1,"descriptors":["user=~","other=~"]`},
		{[]string{"none=ann"}, `"msg":"refused","domain":"shop","code":"OVER_LIMIT","rule":"shop.none","limit":"closed","remaining":0,"reset":1800,"hits":1,"descriptors":["none=~"]`},
		{[]string{"trial=ann"}, `"msg":"would be refused","domain":"shop","code":"OK","would_deny":["shop.trial"],"descriptors":["trial=~"]`},
		{nil, `"msg":"failed","domain":"shop","code":"InvalidArgument","descriptors":[]`},
	} {
		out := &bytes.Buffer{}
		l := start(t, decisionlog.Options{Output: out, All: true})
		l.ask(c.ask...)
		l.flush()
		_, line, _ := strings.Cut(out.String(), ",")
		if line != c.line+"}\n" {
			t.Errorf("%v\n got %s\nwant %s", c.ask, line, c.line)
		}
	}
}

func TestWhatNoLimitDeniedIsLeftOut(t *testing.T) {
	out := &bytes.Buffer{}
	l := start(t, decisionlog.Options{Output: out})
	for _, ask := range []string{"user=ann", "other=ann", "none=ann", "trial=ann", ""} {
		l.ask(ask)
	}
	l.flush()
	if n := strings.Count(out.String(), "\n"); n != 2 || l.log.Lines() != (decisionlog.Lines{Written: 2}) {
		t.Errorf("there are %+v lines: %s", l.log.Lines(), out)
	}
}

func TestNoMoreThanSoManyLinesASecondAreWritten(t *testing.T) {
	out := &bytes.Buffer{}
	l := start(t, decisionlog.Options{Output: out, PerSecond: 3})
	for second := range 4 {
		for range 5 + second {
			l.ask("none=ann")
		}
		l.clock.Advance(time.Second)
	}
	l.flush()
	if n := strings.Count(out.String(), "\n"); n != 12 || l.log.Lines() != (decisionlog.Lines{Written: 12, LeftOut: 14}) {
		t.Errorf("%d lines: %+v", n, l.log.Lines())
	}
}

func TestOneOfSoManyIsWritten(t *testing.T) {
	l := start(t, decisionlog.Options{Output: io.Discard, OneOf: 10, PerSecond: 1_000_000})
	for range 1000 {
		l.ask("none=ann")
	}
	l.flush()
	lines := l.log.Lines()
	const fewest, most = 40, 190 // it is another number once in 10^9 times
	if lines.Written < fewest || lines.Written > most || lines.Written+lines.LeftOut != 1000 {
		t.Errorf("of 1000 lines one of ten was to be written: %+v", lines)
	}
}

// TestAnOutputThatIsStuckHoldsUpNoCall has nobody write at all.
func TestAnOutputThatIsStuckHoldsUpNoCall(t *testing.T) {
	l := start(t, decisionlog.Options{Output: io.Discard, PerSecond: 1_000_000})
	for range 5000 {
		l.ask("none=ann")
	}
	const room = 1024
	if lines := l.log.Lines(); lines.Dropped != 5000-room {
		t.Errorf("%+v", lines)
	}
	l.flush()
	if lines := l.log.Lines(); lines.Written != room {
		t.Errorf("%+v", lines)
	}
}

// full is an output that is full.
type full struct{}

// Write implements io.Writer.
func (full) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func TestAnOutputThatFailsIsToldOf(t *testing.T) {
	told := 0
	l := start(t, decisionlog.Options{Output: full{}, Failed: func(error) { told++ }})
	l.ask("none=ann")
	l.flush()
	if told != 1 || l.log.Lines() != (decisionlog.Lines{Failed: 1}) {
		t.Errorf("told %d times: %+v", told, l.log.Lines())
	}
}

func FuzzALineIsOneShortLineOfJSON(f *testing.F) {
	f.Add("shop", "user", "ann", 1)
	f.Add("shop\n", "\x00\xff", strings.Repeat("é", 200), 40)
	out := &bytes.Buffer{}
	l := start(f, decisionlog.Options{Output: out, All: true, PerSecond: 1 << 30, Value: func(v string) string { return v }})
	f.Fuzz(func(t *testing.T, domain, key, value string, n int) {
		out.Reset()
		d := &common.RateLimitDescriptor{}
		for range n & 63 {
			d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: key, Value: value})
		}
		req := &ratelimit.RateLimitRequest{Domain: domain}
		for range n & 15 {
			req.Descriptors = append(req.Descriptors, d)
		}
		if _, err := l.service.ShouldRateLimit(t.Context(), req); err != nil && strings.Contains(err.Error(), "invalid UTF-8") {
			return // it never was a request
		}
		l.flush()
		var fields map[string]any
		if err := json.Unmarshal(out.Bytes(), &fields); err != nil || strings.Count(out.String(), "\n") != 1 {
			t.Errorf("%v: %q", err, out)
		}
		const most = 6 * 9 * 16 * 300 // 6 is for \u0000
		if out.Len() > most {
			t.Errorf("a line has %d bytes", out.Len())
		}
	})
}
