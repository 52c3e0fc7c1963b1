package rls_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/status"
	"pgregory.net/rapid"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
	"github.com/envoy-rls/envoy-rls/pkg/memstore"
	"github.com/envoy-rls/envoy-rls/pkg/rls"
	"github.com/envoy-rls/envoy-rls/pkg/storetest"
)

const explainRules = `
domain: d
descriptors:
  - {key: fixed_window, rate_limit: {unit: minute, requests_per_unit: 3, algorithm: fixed_window}}
  - {key: sliding_window, rate_limit: {unit: minute, requests_per_unit: 3, algorithm: sliding_window}}
  - {key: sliding_log, rate_limit: {unit: minute, requests_per_unit: 3, algorithm: sliding_log}}
  - {key: token_bucket, rate_limit: {unit: minute, requests_per_unit: 3, algorithm: token_bucket, burst: 5}}
  - {key: leaky_bucket, rate_limit: {unit: minute, requests_per_unit: 3, algorithm: leaky_bucket, burst: 2}}
  - {key: none, rate_limit: {unit: minute, requests_per_unit: 0}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: staff, value: "yes", exempt: true}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: quota, value: a, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: quota, value: b, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: greedy, count_denied: true, rate_limit: {unit: minute, requests_per_unit: 3}}
  - {key: named, rate_limit: {name: small, unit: minute, requests_per_unit: 1}}
  - {key: replacing, rate_limit: {unit: minute, requests_per_unit: 4, replaces: [{name: small}]}}
  - {key: bounded, max_values: 1, rate_limit: {unit: minute, requests_per_unit: 2}}
  - key: several
    rate_limits:
      - {unit: minute, requests_per_unit: 5}
      - {unit: second, requests_per_unit: 2}
      - {unit: hour, requests_per_unit: 1, shadow_mode: true}
`

func explain(t testing.TB, s *rls.Service, req *ratelimit.RateLimitRequest) *rls.Explanation {
	t.Helper()
	x, err := s.Explain(context.Background(), req)
	if err != nil {
		t.Fatalf("explaining %v: %v", req, err)
	}
	return x
}

// drawDescriptor is one that meets any of explainRules, or none.
func drawDescriptor(t *rapid.T) *common.RateLimitDescriptor {
	d := descriptor(rapid.SampledFrom([]string{
		"fixed_window=x", "sliding_window=x", "sliding_log=x", "token_bucket=x", "leaky_bucket=x", "none=x", "free=x", "staff=yes",
		"shadow=x", "quota=a", "quota=b", "greedy=x", "named=x", "replacing=x", "bounded=a", "bounded=b", "several=x", "nobody=x", "",
	}).Draw(t, "descriptor"))
	switch rapid.IntRange(0, 5).Draw(t, "kind") {
	case 0:
		return costing(d, rapid.Uint64Range(0, 4).Draw(t, "cost"))
	case 1:
		return givingBack(d, rapid.Uint64Range(0, 2).Draw(t, "give back"))
	case 2:
		return limited(d, 2, typev3.RateLimitUnit_HOUR)
	}
	return d
}

// TestExplainForetellsTheAnswerAndChangesNothing is about any sequence of requests.
func TestExplainForetellsTheAnswerAndChangesNothing(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		clock := &storetest.Clock{}
		clock.Set(at)
		compat := rapid.Bool().Draw(rt, "compat")
		s := serviceOver(t, memstore.New(memstore.Options{Now: clock.Now}), explainRules, rls.Options{Now: clock.Now, Compat: compat})
		now := at
		for range rapid.IntRange(1, 30).Draw(rt, "requests") {
			now = now.Add(time.Duration(rapid.IntRange(0, 40_000).Draw(rt, "ms")) * time.Millisecond)
			clock.Set(now)
			req := request(rapid.SliceOfN(rapid.Custom(drawDescriptor), 1, 3).Draw(rt, "descriptors")...)
			told := explain(t, s, req)
			if again := explain(t, s, req); !reflect.DeepEqual(told, again) {
				rt.Fatalf("explaining changed something:\n%+v\n%+v", told, again)
			}
			answer, err := s.ShouldRateLimit(context.Background(), req)
			if err != nil {
				rt.Fatal(err)
			}
			if slices.ContainsFunc(told.Descriptors, givesBackASlidingWindow) {
				continue // how much of it is of the present window, its room doesn't tell
			}
			if told.Answer != answer.GetOverallCode().String() {
				rt.Fatalf("%v is told to be answered %s, and is %v", req, told.Answer, answer)
			}
			for i, st := range answer.GetStatuses() {
				if problem := foretold(told.Descriptors, i, st); problem != "" {
					rt.Fatalf("%v: descriptor %d %s:\n%+v\n%v", req, i, problem, told.Descriptors[i], st)
				}
			}
		}
	})
}

func givesBackASlidingWindow(d rls.ExplainedDescriptor) bool {
	return d.Cost < 0 && d.Rule == "d.sliding_window"
}

// foretold says how a status differs from what was told of its descriptor, the i-th of all, if it does.
func foretold(all []rls.ExplainedDescriptor, i int, st *ratelimit.RateLimitResponse_DescriptorStatus) string {
	d := &all[i]
	var asked []rls.ExplainedLimit
	for _, l := range d.Limits {
		if l.Skipped == "" && !strings.Contains(l.Words, "tried out") {
			asked = append(asked, l)
		}
	}
	allowed := !slices.ContainsFunc(asked, func(l rls.ExplainedLimit) bool { return !l.Allowed })
	if allowed != (st.GetCode() == ratelimit.RateLimitResponse_OK) {
		return "has another verdict"
	}
	if len(asked) != 1 {
		return ""
	}
	if left := max(asked[0].LeftAfter, 0); allowed && uint32(left) != st.GetLimitRemaining() {
		return "has another rest"
	}
	told, wait := time.Duration(asked[0].RetryAfter*float64(time.Second)), st.GetDurationUntilReset().AsDuration()
	exact := (d.Cost <= 1 && asked[0].Left <= 0 || strings.Contains(asked[0].Words, "fixed window")) && !givesBack(all, asked[0].Counter)
	if !allowed && (told <= wait-time.Second || exact && told > wait) {
		return "has another wait"
	}
	return ""
}

// givesBack tells whether a descriptor gives back to a counter, which then may admit sooner.
func givesBack(all []rls.ExplainedDescriptor, counter string) bool {
	return slices.ContainsFunc(all, func(d rls.ExplainedDescriptor) bool {
		return d.Cost < 0 && slices.ContainsFunc(d.Limits, func(l rls.ExplainedLimit) bool { return l.Counter == counter })
	})
}

func TestExplainTellsWhatItFound(t *testing.T) {
	s := newService(t, explainRules, rls.Options{})
	two := request(costing(descriptor("fixed_window=x"), 2), descriptor("nobody=x"))
	ask(t, s, two)
	x := explain(t, s, two)
	l := x.Descriptors[0].Limits[0]
	want := rls.ExplainedLimit{
		Path: "d.fixed_window", Words: "3 per minute for each distinct fixed_window, fixed window; refused requests cost nothing",
		Counter: "1:d12:fixed_window=1:x/fixed_window60", Decided: "store", OnFailure: "error",
		Most: 3, Left: 1, ResetAfter: 48.5, Allowed: false, LeftAfter: 1, RetryAfter: 48.5,
	}
	if l != want {
		t.Errorf("the limit is told as\n%+v, want\n%+v", l, want)
	}
	if x.Answer != "OVER_LIMIT" || x.Places != 1 || x.At != "rules.yaml:2" || x.Descriptors[0].Rule != "d.fixed_window" {
		t.Errorf("%+v", x)
	}
	if why := x.Descriptors[1].Why; !strings.Contains(why, "no key `nobody`") {
		t.Errorf("the descriptor without a rule: %s", why)
	}
}

func TestExplainTellsOfCountersThatValuesShare(t *testing.T) {
	s := newService(t, explainRules, rls.Options{})
	if x := explain(t, s, request(descriptor("bounded=b"))); x.Descriptors[0].Overflow {
		t.Error("the first value overflows")
	}
	both := explain(t, s, request(descriptor("bounded=b"), descriptor("bounded=a"), descriptor("bounded=b"))).Descriptors
	if both[0].Overflow || !both[1].Overflow || both[2].Overflow {
		t.Errorf("the values of one request are told as %+v", both)
	}
	ask(t, s, request(descriptor("bounded=a")))
	x := explain(t, s, request(descriptor("bounded=b")))
	if d := x.Descriptors[0]; !d.Overflow || d.Limits[0].Counter != "1:d!9:d.bounded/fixed_window60" {
		t.Errorf("the second value is told as %+v", d)
	}
}

func TestExplainTellsNoEvents(t *testing.T) {
	told := 0
	o := rls.Options{Events: rls.Events{
		Answered: func(rls.Answered) { told++ }, Decided: func(rls.Decided) { told++ }, Unmatched: func(rls.Unmatched) { told++ },
		Empty: func(string) { told++ }, BadOverride: func(string) { told++ }, Overflow: func(string, string) { told++ },
	}}
	s := newService(t, explainRules, o)
	explain(t, s, request(descriptor(""), descriptor("bounded=a"), limited(descriptor("none=x"), 1, typev3.RateLimitUnit_UNKNOWN)))
	if told != 0 {
		t.Errorf("%d events", told)
	}
}

func TestExplainWithoutCounts(t *testing.T) {
	rules := "domain: d\ndescriptors: [{key: a, on_store_failure: %s, rate_limit: {unit: day, requests_per_unit: 1}}]"
	for policy, want := range map[string]string{"deny": "OVER_LIMIT", "allow": "OK", "error": "error", "local": "error"} {
		s := serviceOver(t, failingStore{}, strings.ReplaceAll(rules, "%s", policy), rls.Options{})
		x := explain(t, s, request(descriptor("a=x")))
		if x.Answer != want || x.Failure != "no store" || x.Descriptors[0].Limits[0].Decided != rls.DecidedByNobody {
			t.Errorf("%s: %+v", policy, x)
		}
	}
	s := serviceOver(t, nil, strings.ReplaceAll(rules, "%s", "deny"), rls.Options{})
	if x := explain(t, s, request(descriptor("a=x"))); x.Answer != "" || x.Failure != "" || x.Descriptors[0].Rule != "d.a" {
		t.Errorf("without a store: %+v", x)
	}
	if x := explain(t, s, request(descriptor("b=x"))); x.Answer != "OK" {
		t.Errorf("without a rule: %+v", x)
	}
}

// failingStore is a store that can't be asked, as its promises allow.
type failingStore struct{}

// Decide implements limiter.Store.
func (failingStore) Decide(context.Context, *limiter.Batch) error { return errors.New("no store") }

func TestExplainRefusesWhatCallsRefuse(t *testing.T) {
	s := newService(t, explainRules, rls.Options{})
	if _, err := s.Explain(context.Background(), request()); status.Convert(err).Message() != "rate limit descriptor list must not be empty" {
		t.Errorf("no descriptors: %v", err)
	}
	var many []*common.RateLimitDescriptor
	for range rls.MaxHits + 1 {
		many = append(many, descriptor("greedy=x"))
	}
	if _, err := s.Explain(context.Background(), request(many...)); err == nil || !strings.Contains(err.Error(), "ask in parts") {
		t.Errorf("too many: %v", err)
	}
	if _, err := rls.New(nil, rls.Options{}).Explain(context.Background(), request(descriptor("a=x"))); err == nil {
		t.Error("no rules, and no error")
	}
	levels := explain(t, s, request(descriptor("staff=yes"))).Descriptors[0].Levels
	if len(levels) != 1 || levels[0].Match != descriptors.MatchExact {
		t.Errorf("levels %+v", levels)
	}
}
