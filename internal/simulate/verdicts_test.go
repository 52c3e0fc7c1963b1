package simulate_test

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"pgregory.net/rapid"

	"github.com/envoy-rls/envoy-rls/internal/simulate"
	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
	"github.com/envoy-rls/envoy-rls/pkg/memstore"
	"github.com/envoy-rls/envoy-rls/pkg/rls"
	"github.com/envoy-rls/envoy-rls/pkg/storetest"
)

// hit is a line of a log.
type hit struct {
	Time time.Time `json:"time"`
	User string    `json:"user,omitempty"`
	Path string    `json:"path,omitempty"`
	Cost uint64    `json:"cost"`
}

// world is random rules, settings and traffic.
type world struct {
	rules   func() *descriptors.Ruleset // each time others: they remember the values that were seen
	options rls.Options
	limit   *common.RateLimitDescriptor_RateLimitOverride
	hits    []hit
}

func drawWorld(t *rapid.T) *world {
	w := &world{options: rls.Options{
		Compat: rapid.Bool().Draw(t, "compat"),
		Quota:  rapid.IntRange(0, 3).Draw(t, "quota") == 0,
		Defaults: descriptors.Defaults{
			Algorithm:   limiter.Algorithm(rapid.IntRange(0, 3).Draw(t, "default algorithm")),
			CountDenied: rapid.Bool().Draw(t, "default count denied"),
		},
	}}
	text := drawRules(t)
	compile := descriptors.Options{
		Defaults: w.options.Defaults, FileOrder: w.options.Compat, StopTogether: rapid.Bool().Draw(t, "stop together"),
	}
	w.rules = func() *descriptors.Ruleset {
		rules, problems := descriptors.Compile([]descriptors.File{{Name: "rules.yaml", Data: []byte(text)}}, compile)
		if descriptors.HasErrors(problems) {
			t.Fatalf("%s\n%v", text, problems)
		}
		return rules
	}
	if rapid.IntRange(0, 3).Draw(t, "brings a limit") == 0 {
		w.limit = &common.RateLimitDescriptor_RateLimitOverride{
			RequestsPerUnit: rapid.Uint32Range(0, 4).Draw(t, "limit"), Unit: typev3.RateLimitUnit_MINUTE,
		}
	}
	at := time.Date(2026, 11, 30, 10, 0, 11, 0, time.UTC)
	for range rapid.IntRange(1, 80).Draw(t, "hits") {
		at = at.Add(time.Duration(rapid.SampledFrom([]int{0, 0, 1, 137, 900, 5_000, 31_000, 3_600_000}).Draw(t, "pause ms")) * time.Millisecond)
		w.hits = append(w.hits, hit{
			Time: at,
			User: rapid.SampledFrom([]string{"ann", "bob", "Robot", "10.1.2.3", "10.1.9.9", ""}).Draw(t, "user"),
			Path: rapid.SampledFrom([]string{"/a", "/a?x=1", "/b/c", ""}).Draw(t, "path"),
			Cost: rapid.SampledFrom([]uint64{1, 1, 1, 0, 2, 7}).Draw(t, "cost"),
		})
	}
	return w
}

// drawRules draws rules for user, path and both, of all kinds.
func drawRules(t *rapid.T) string {
	var b strings.Builder
	b.WriteString("domain: d\nkeys: {path: {strip_query: true}, user: {ip_mask: {v4: 16}, lowercase: true}}\ndescriptors:\n")
	rule := func(name, head string) {
		fmt.Fprintf(&b, "  - {%s, %s%s}\n", head, drawPolicies(t), drawLimits(t, name))
	}
	rule("user", "key: user")
	rule("path", "key: path")
	if rapid.Bool().Draw(t, "robot") {
		fmt.Fprintf(&b, "  - {key: user, value: robot, %s}\n", rapid.SampledFrom([]string{
			"rate_limit: {unlimited: true}", "exempt: true", "rate_limit: {unit: day, requests_per_unit: 0}",
			"rate_limit: {unlimited: true, replaces: [{name: path}]}",
		}).Draw(t, "robot's"))
	}
	if rapid.Bool().Draw(t, "wildcard") {
		rule("star", `key: path, value: "/b/*", share_threshold: true`)
	}
	fmt.Fprintf(&b, "  - {key: tenant, descriptors: [{key: user, %s%s}]}\n", drawPolicies(t), drawLimits(t, "tenant"))
	return b.String()
}

func drawPolicies(t *rapid.T) string {
	return rapid.SampledFrom([]string{
		"", "", "shadow_mode: true, ", "quota_mode: true, ", "count_denied: true, ", "count_denied: false, ", "max_values: 1, ",
	}).Draw(t, "policies")
}

func drawLimits(t *rapid.T, name string) string {
	limit := func(name, unit, more string) string {
		algorithm := rapid.SampledFrom([]string{"fixed_window", "sliding_window", "sliding_log", "token_bucket, burst: 2"}).Draw(t, "algorithm")
		return fmt.Sprintf("{name: %s, unit: %s, requests_per_unit: %d, algorithm: %s%s}", name, unit,
			rapid.IntRange(1, 5).Draw(t, "requests"), algorithm, more)
	}
	switch rapid.IntRange(0, 2).Draw(t, "limits") {
	case 0:
		return "rate_limits: [" + limit(name, "minute", "") + ", " + limit(name+"-hourly", "hour", ", shadow_mode: true") + "]"
	case 1:
		return "rate_limits: [" + limit(name, "second", "") + ", " + limit(name+"-hourly", "hour", "") + "]"
	}
	return "rate_limit: " + limit(name, "minute", "")
}

// live asks the service itself, as a proxy would, and tells what it said to each request.
func (w *world) live(t *rapid.T) []string {
	clock := &storetest.Clock{}
	o := w.options
	o.Now = clock.Now
	s := rls.New(memstore.New(memstore.Options{Now: clock.Now}), o)
	s.SetRules(w.rules())
	var verdicts []string
	for _, h := range w.hits {
		req := &ratelimit.RateLimitRequest{Domain: "d"}
		add := func(entries ...*common.RateLimitDescriptor_Entry) {
			for _, e := range entries {
				if e.GetValue() == "" {
					return
				}
			}
			req.Descriptors = append(req.Descriptors, &common.RateLimitDescriptor{
				Entries: entries, Limit: w.limit, HitsAddend: wrapperspb.UInt64(h.Cost),
			})
		}
		user := &common.RateLimitDescriptor_Entry{Key: "user", Value: h.User}
		add(user)
		add(&common.RateLimitDescriptor_Entry{Key: "path", Value: h.Path})
		add(&common.RateLimitDescriptor_Entry{Key: "tenant", Value: "t"}, user)
		if len(req.Descriptors) == 0 {
			continue
		}
		clock.Set(h.Time)
		answer, err := s.ShouldRateLimit(context.Background(), req)
		if err != nil {
			t.Fatal(err)
		}
		verdicts = append(verdicts, fmt.Sprint(h.Time.UnixMicro(), " ", answer.GetOverallCode()))
	}
	return verdicts
}

// simulated has the same from a log: twice, as both sets of a comparison, which must not see each other's counters.
func (w *world) simulated(t *rapid.T, dir string) []string {
	mapping, err := simulate.NewMapping([]string{"user={user}", "path={path}", "tenant=t,user={user}"}, "{cost}")
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "access.log")
	if err := os.WriteFile(name, w.log(), 0o600); err != nil {
		t.Fatal(err)
	}
	options := simulate.Options{Domain: "d", Service: w.options, Limit: w.limit}
	var verdicts []string
	run := simulate.Run{
		Traffic: &simulate.Log{Files: []string{name}, Mapping: mapping}, Top: 3,
		Sets: []*simulate.Set{simulate.NewSet(w.rules(), options), simulate.NewSet(w.rules(), options)},
		Each: func(r *simulate.Request, v simulate.Verdict) {
			code := ratelimit.RateLimitResponse_OK
			if v.Refused {
				code = ratelimit.RateLimitResponse_OVER_LIMIT
			}
			verdicts = append(verdicts, fmt.Sprint(r.At, " ", code))
		},
	}
	result, err := run.Do()
	if err != nil {
		t.Fatal(err)
	}
	refused := int64(0)
	for _, v := range verdicts {
		if strings.HasSuffix(v, "OVER_LIMIT") {
			refused++
		}
	}
	if result.Sets[0].Refused != refused || result.Sets[1].Refused != refused || result.OnlyFirst+result.OnlySecond != 0 {
		t.Errorf("%d are refused, of which the result tells %+v", refused, result)
	}
	return verdicts
}

func (w *world) log() []byte {
	var b strings.Builder
	for _, h := range w.hits {
		line, _ := json.Marshal(h) // a struct of texts and numbers
		b.Write(append(line, '\n'))
	}
	return []byte(b.String())
}

func TestEveryVerdictIsThatOfTheLiveService(t *testing.T) {
	dir := t.TempDir()
	asked, refused := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		got, want := w.simulated(t, dir), w.live(t)
		if !slices.Equal(got, want) {
			t.Errorf("it was said\n%q, want\n%q", got, want)
		}
		asked += len(want)
		for _, v := range want {
			if strings.HasSuffix(v, "OVER_LIMIT") {
				refused++
			}
		}
	})
	t.Logf("of %d requests %d are refused", asked, refused)
	if refused < asked/20 || refused > asked*19/20 {
		t.Error("which shows little")
	}
}

// writeLog writes a log of lines, gzipped if its name says so.
func writeLog(t *testing.T, name string, lines ...string) string {
	t.Helper()
	name = filepath.Join(t.TempDir(), name)
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	w := io.WriteCloser(f)
	if strings.HasSuffix(name, ".gz") {
		w = gzip.NewWriter(f)
	}
	if _, err := io.WriteString(w, strings.Join(lines, "\n")+"\n"); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return name
}
