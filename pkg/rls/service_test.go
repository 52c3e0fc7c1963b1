package rls_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
	"github.com/envoy-rls/envoy-rls/pkg/memstore"
	"github.com/envoy-rls/envoy-rls/pkg/redisstore"
	"github.com/envoy-rls/envoy-rls/pkg/rls"
	"github.com/envoy-rls/envoy-rls/pkg/storetest"
)

// at is when the clock of newService stands: 48.5 seconds before the end of a minute.
var at = time.Date(2026, 11, 30, 10, 0, 11, 5e8, time.UTC)

func newService(t testing.TB, rules string, o rls.Options) *rls.Service {
	t.Helper()
	clock := &storetest.Clock{}
	clock.Set(at)
	o.Now = clock.Now
	return serviceOver(t, memstore.New(memstore.Options{Now: clock.Now}), rules, o)
}

func serviceOver(t testing.TB, store limiter.Store, rules string, o rls.Options) *rls.Service {
	t.Helper()
	s := rls.New(store, o)
	compiled, problems := descriptors.Compile([]descriptors.File{{Name: "rules.yaml", Data: []byte(rules)}},
		descriptors.Options{Defaults: o.Defaults, FileOrder: o.Compat, ReplacedNames: o.ReplacedNames})
	if descriptors.HasErrors(problems) {
		t.Fatal(problems)
	}
	s.SetRules(compiled)
	return s
}

// descriptor reads "a=1 b=2".
func descriptor(text string) *common.RateLimitDescriptor {
	d := &common.RateLimitDescriptor{}
	for _, word := range strings.Fields(text) {
		key, value, _ := strings.Cut(word, "=")
		d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	return d
}

func costing(d *common.RateLimitDescriptor, hits uint64) *common.RateLimitDescriptor {
	d.HitsAddend = wrapperspb.UInt64(hits)
	return d
}

func givingBack(d *common.RateLimitDescriptor, hits uint64) *common.RateLimitDescriptor {
	d.IsNegativeHits = true
	return costing(d, hits)
}

func limited(d *common.RateLimitDescriptor, requests uint32, unit typev3.RateLimitUnit) *common.RateLimitDescriptor {
	d.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: requests, Unit: unit}
	return d
}

func request(list ...*common.RateLimitDescriptor) *ratelimit.RateLimitRequest {
	return &ratelimit.RateLimitRequest{Domain: "d", Descriptors: list}
}

// ask answers in words: the overall code, then for each descriptor its code, remaining of the limit, and
// wait, such as "OK: OK 2/3 49s, OK".
func ask(t testing.TB, s *rls.Service, req *ratelimit.RateLimitRequest) string {
	t.Helper()
	answer, err := s.ShouldRateLimit(context.Background(), req)
	if err != nil {
		return fmt.Sprintf("%s: %s", status.Code(err), status.Convert(err).Message())
	}
	words := make([]string, 0, len(answer.GetStatuses()))
	for _, st := range answer.GetStatuses() {
		word := st.GetCode().String()
		switch limit := st.GetCurrentLimit(); {
		case limit != nil:
			word += fmt.Sprintf(" %d/%d %s", st.GetLimitRemaining(), limit.GetRequestsPerUnit(),
				st.GetDurationUntilReset().AsDuration())
		case st.GetLimitRemaining() != 0:
			word += fmt.Sprintf(" %d", st.GetLimitRemaining())
		}
		words = append(words, word)
	}
	return fmt.Sprintf("%s: %s", answer.GetOverallCode(), strings.Join(words, ", "))
}

func expect(t *testing.T, s *rls.Service, req *ratelimit.RateLimitRequest, want string) {
	t.Helper()
	if got := ask(t, s, req); got != want {
		t.Errorf("%v\n got %s\nwant %s", req, got, want)
	}
}

const rules = `
domain: d
descriptors:
  - {key: three, rate_limit: {unit: minute, requests_per_unit: 3}}
  - {key: none, rate_limit: {unit: minute, requests_per_unit: 0}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: known}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: quota, value: a, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: quota, value: b, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: greedy, count_denied: true, rate_limit: {unit: minute, requests_per_unit: 3}}
  - {key: long, rate_limit: {name: long, unit: week, unit_multiplier: 2, requests_per_unit: 5}}
`

func TestALimitIsReached(t *testing.T) {
	s := newService(t, rules, rls.Options{})
	expect(t, s, request(descriptor("three=x")), "OK: OK 2/3 49s")
	expect(t, s, request(descriptor("three=x")), "OK: OK 1/3 49s")
	expect(t, s, request(descriptor("three=x")), "OK: OK 0/3 49s")
	expect(t, s, request(descriptor("three=x")), "OVER_LIMIT: OVER_LIMIT 0/3 49s")
	expect(t, s, request(descriptor("three=y")), "OK: OK 2/3 49s")
	expect(t, s, request(descriptor("none=x")), "OVER_LIMIT: OVER_LIMIT 0/0 49s")
}

func TestWhatHasNoLimitPasses(t *testing.T) {
	s := newService(t, rules, rls.Options{})
	expect(t, s, request(descriptor("other=x"), descriptor(""), descriptor("known=x"), descriptor("free=x")),
		"OK: OK, OK, OK, OK 4294967295")
	unknown := request(descriptor("three=x"))
	unknown.Domain = "nobody"
	expect(t, s, unknown, "OK: OK")
}

func TestWrongRequestsAreRefused(t *testing.T) {
	for _, c := range []struct {
		compat bool
		code   string
	}{{false, "InvalidArgument"}, {true, "Unknown"}} {
		s := newService(t, rules, rls.Options{Compat: c.compat})
		expect(t, s, &ratelimit.RateLimitRequest{}, c.code+": rate limit domain must not be empty")
		expect(t, s, request(), c.code+": rate limit descriptor list must not be empty")
		var many []*common.RateLimitDescriptor
		for range rls.MaxHits {
			many = append(many, descriptor("greedy=x"))
		}
		if got := ask(t, s, request(many...)); !strings.HasPrefix(got, "OVER_LIMIT: ") {
			t.Errorf("%d hits: %s", rls.MaxHits, got)
		}
		expect(t, s, request(append(many, descriptor("greedy=x"))...),
			c.code+": the request comes to more than 256 hits; ask in parts")
	}
	unready := rls.New(memstore.New(memstore.Options{}), rls.Options{})
	expect(t, unready, request(descriptor("three=x")), "Unavailable: no rate limit configuration loaded")
}

func TestCosts(t *testing.T) {
	s := newService(t, rules, rls.Options{})
	two := request(descriptor("three=x"))
	two.HitsAddend = 2
	expect(t, s, two, "OK: OK 1/3 49s")
	expect(t, s, two, "OVER_LIMIT: OVER_LIMIT 0/3 49s") // and costs nothing
	expect(t, s, request(costing(descriptor("three=x"), 0)), "OK: OK 1/3 49s")
	zero := request(descriptor("three=x")) // a request's 0 counts as 1
	expect(t, s, zero, "OK: OK 0/3 49s")
	expect(t, s, request(costing(descriptor("three=x"), 0)), "OVER_LIMIT: OVER_LIMIT 0/3 49s")
	two.Descriptors = append(two.Descriptors, costing(descriptor("greedy=x"), 1)) // its own cost wins
	expect(t, s, two, "OVER_LIMIT: OVER_LIMIT 0/3 49s, OK 2/3 49s")
	expect(t, s, request(costing(descriptor("three=huge"), 1<<64-5)), "OVER_LIMIT: OVER_LIMIT 0/3 49s")
	expect(t, s, request(descriptor("three=huge")), "OK: OK 2/3 49s")
}

func TestGiveBacks(t *testing.T) {
	s := newService(t, rules, rls.Options{})
	expect(t, s, request(givingBack(descriptor("three=x"), 5)), "OK: OK 3/3 49s")
	expect(t, s, request(costing(descriptor("three=x"), 3)), "OK: OK 0/3 49s")
	expect(t, s, request(givingBack(descriptor("three=x"), 2)), "OK: OK 2/3 49s")
	expect(t, s, request(givingBack(descriptor("three=x"), 1<<63+1)), "OK: OK 3/3 49s")
	expect(t, s, request(givingBack(descriptor("none=x"), 1)), "OK: OK 0/0 49s")
}

func TestARefusedRequestCostsNothingUnlessItsRuleSaysSo(t *testing.T) {
	s := newService(t, rules, rls.Options{})
	expect(t, s, request(descriptor("none=x"), descriptor("three=x")), "OVER_LIMIT: OVER_LIMIT 0/0 49s, OK 3/3 49s")
	expect(t, s, request(descriptor("none=x"), descriptor("greedy=x")), "OVER_LIMIT: OVER_LIMIT 0/0 49s, OK 2/3 49s")
}

func TestTheSameDescriptorTwiceCountsTwice(t *testing.T) {
	s := newService(t, rules, rls.Options{})
	expect(t, s, request(descriptor("three=x"), descriptor("three=x")), "OK: OK 2/3 49s, OK 1/3 49s")
}

func TestAShadowRuleNeverRefusesAndIsNotSeen(t *testing.T) {
	for _, c := range []struct {
		compat      bool
		first, then string
	}{
		{false, "OK: OK", "OVER_LIMIT: OK, OVER_LIMIT 0/0 49s"},
		{true, "OK: OK 0/1 49s", "OVER_LIMIT: OK 0/1 49s, OVER_LIMIT 0/0 49s"},
	} {
		s := newService(t, rules, rls.Options{Compat: c.compat})
		expect(t, s, request(descriptor("shadow=x")), c.first)
		expect(t, s, request(descriptor("shadow=x")), c.first)
		expect(t, s, request(descriptor("shadow=x"), descriptor("none=x")), c.then)
	}
}

func TestAQuotaRefusesOnlyWithAllOthers(t *testing.T) {
	s := newService(t, rules, rls.Options{})
	both := request(descriptor("quota=a"), descriptor("quota=b"))
	expect(t, s, both, "OK: OK 0/1 49s, OK 1/2 49s")
	expect(t, s, both, "OK: OVER_LIMIT 0/1 49s, OK 0/2 49s")
	expect(t, s, both, "OVER_LIMIT: OVER_LIMIT 0/1 49s, OVER_LIMIT 0/2 49s")
	expect(t, s, request(descriptor("quota=a"), descriptor("three=x")), "OVER_LIMIT: OVER_LIMIT 0/1 49s, OK 3/3 49s")
	expect(t, s, request(descriptor("quota=a"), descriptor("other=x"), descriptor("free=x")),
		"OVER_LIMIT: OVER_LIMIT 0/1 49s, OK, OK 4294967295")
}

func TestReplacedLimitsAreNotAsked(t *testing.T) {
	s := newService(t, `
domain: d
descriptors:
  - {key: ban, rate_limit: {name: ban, unit: minute, requests_per_unit: 0}}
  - {key: mid, rate_limit: {name: mid, unit: minute, requests_per_unit: 0, replaces: [{name: ban}]}}
  - {key: boost, rate_limit: {name: boost, unit: minute, requests_per_unit: 2, replaces: [{name: mid}]}}
  - {key: gold, rate_limit: {unlimited: true, replaces: [{name: ban}, {name: gold}]}}
`, rls.Options{})
	expect(t, s, request(descriptor("ban=x")), "OVER_LIMIT: OVER_LIMIT 0/0 49s")
	expect(t, s, request(descriptor("ban=x"), descriptor("gold=x")), "OK: OK, OK 4294967295")
	expect(t, s, request(descriptor("boost=x"), descriptor("mid=x"), descriptor("ban=x")), "OK: OK 1/2 49s, OK, OK")
}

func TestUnitsMultipliersAndNamesAreShown(t *testing.T) {
	s := newService(t, rules, rls.Options{})
	answer, err := s.ShouldRateLimit(context.Background(), request(descriptor("long=x")))
	if err != nil {
		t.Fatal(err)
	}
	limit := answer.GetStatuses()[0].GetCurrentLimit()
	if limit.GetName() != "long" || limit.GetUnit() != ratelimit.RateLimitResponse_RateLimit_WEEK ||
		limit.GetUnitMultiplier().GetValue() != 2 {
		t.Errorf("the limit is %v", limit)
	}
}

func TestALimitInTheRequestReplacesTheRulesNumber(t *testing.T) {
	s := newService(t, rules, rls.Options{})
	minute, unknown := typev3.RateLimitUnit_MINUTE, typev3.RateLimitUnit_UNKNOWN
	expect(t, s, request(limited(descriptor("three=x"), 5, minute)), "OK: OK 4/5 49s")
	expect(t, s, request(descriptor("three=x")), "OK: OK 1/3 49s") // the same counter
	expect(t, s, request(limited(descriptor("free=x"), 5, minute)), "OK: OK 4/5 49s")
	expect(t, s, request(limited(descriptor("other=x"), 5, minute)), "OK: OK 4/5 49s")
	expect(t, s, request(limited(descriptor("shadow=x"), 0, minute)), "OK: OK") // still a shadow
	expect(t, s, request(limited(descriptor(""), 0, minute)), "OK: OK")
	nobody := request(limited(descriptor("three=x"), 0, minute))
	nobody.Domain = "nobody"
	expect(t, s, nobody, "OVER_LIMIT: OVER_LIMIT 0/0 49s")
	for i, unit := range []typev3.RateLimitUnit{unknown, 7, 99, -1} { // ignored
		user := descriptor(fmt.Sprint("three=user", i))
		expect(t, s, request(limited(user, 0, unit), limited(descriptor("other=x"), 0, unit)), "OK: OK 2/3 49s, OK")
	}
	quarter := limited(descriptor("three=z"), 5, minute)
	quarter.Limit.UnitMultiplier = wrapperspb.UInt32(15)
	expect(t, s, request(quarter), "OK: OK 4/5 14m49s")
	quarter.Limit.UnitMultiplier = wrapperspb.UInt32(0)
	expect(t, s, request(quarter), "OK: OK 2/3 49s")
	quarter.Limit.UnitMultiplier = wrapperspb.UInt32(1<<32 - 1)
	expect(t, s, request(quarter), "OK: OK 1/3 49s")
}

func TestALimitInTheRequestTakesTheRulesPlaceInCompat(t *testing.T) {
	s := newService(t, rules, rls.Options{Compat: true})
	minute := typev3.RateLimitUnit_MINUTE
	expect(t, s, request(limited(descriptor("shadow=x"), 0, minute)), "OVER_LIMIT: OVER_LIMIT 0/0 49s")
	expect(t, s, request(limited(descriptor(""), 0, minute)), "OVER_LIMIT: OVER_LIMIT 0/0 49s")
	nobody := request(limited(descriptor("three=x"), 0, minute))
	nobody.Domain = "nobody"
	expect(t, s, nobody, "OK: OK")
	expect(t, s, request(costing(descriptor("three=x"), 3)), "OK: OK 0/3 49s")
	expect(t, s, request(costing(descriptor("three=x"), 0)), "OK: OK 0/3 49s") // a look passes at the limit
}

func headers(t *testing.T, s *rls.Service, req *ratelimit.RateLimitRequest) map[string]string {
	t.Helper()
	answer, err := s.ShouldRateLimit(context.Background(), req)
	if err != nil {
		t.Fatal(err)
	}
	m := map[string]string{}
	for _, h := range answer.GetResponseHeadersToAdd() {
		m[h.GetKey()] = h.GetValue()
	}
	return m
}

func TestHeadersTellOfTheLimitThatMatters(t *testing.T) {
	s := newService(t, rules, rls.Options{Headers: rls.HeaderOptions{
		Limit: "L", Remaining: "M", Reset: "T", RetryAfter: "Retry-After", Rule: "Rule",
	}})
	for _, c := range []struct {
		req  *ratelimit.RateLimitRequest
		want map[string]string
	}{
		{request(descriptor("other=x"), descriptor("free=x")), map[string]string{}},
		{request(descriptor("shadow=x")), map[string]string{}},
		{request(descriptor("three=x"), descriptor("shadow=x")), map[string]string{"L": "3", "M": "2", "T": "49"}},
		{request(descriptor("greedy=x"), descriptor("quota=b")), map[string]string{"L": "2", "M": "1", "T": "49"}},
		{request(descriptor("none=x"), descriptor("three=x")), map[string]string{
			"L": "0", "M": "0", "T": "49", "Retry-After": "49", "Rule": "d.none"}},
		{request(descriptor("none=x"), costing(descriptor("long=x"), 6)), map[string]string{
			"L": "5", "M": "0", "T": "223189", "Retry-After": "223189", "Rule": "long"}},
		{request(descriptor("quota=a"), descriptor("quota=b")), map[string]string{"L": "1", "M": "0", "T": "49"}},
		// The quota a is used up, which refuses nothing while b has room.
		{request(descriptor("quota=a"), descriptor("three=x")), map[string]string{
			"L": "1", "M": "0", "T": "49", "Retry-After": "49", "Rule": "d.quota_a"}},
	} {
		if got := headers(t, s, c.req); !maps.Equal(got, c.want) {
			t.Errorf("%v\n got %v\nwant %v", c.req, got, c.want)
		}
	}
}

const listRules = `
domain: d
partition_by: tenant
descriptors:
  - key: tenant
    rate_limits:
      - {name: tried, unit: minute, requests_per_unit: 1, algorithm: sliding_window, shadow_mode: true}
      - {name: day, unit: day, requests_per_unit: 10}
      - {unit: minute, requests_per_unit: 3}
    descriptors:
      - {key: user, rate_limit: {unit: second, requests_per_unit: 2, algorithm: token_bucket}}
      - {key: hook, rate_limit: {unit: second, requests_per_unit: 2, algorithm: leaky_bucket, burst: 5}}
  - {key: boost, rate_limit: {unlimited: true, replaces: [{name: day}]}}
`

func TestTheLimitsOfAListAreDecidedTogether(t *testing.T) {
	results := map[string]int{}
	s := newService(t, listRules, rls.Options{
		Headers: rls.HeaderOptions{Rule: "Rule"},
		Events:  rls.Events{Decided: func(d rls.Decided) { results[d.Path+" "+string(d.Result)]++ }},
	})
	for _, want := range []string{"OK: OK 2/3 49s", "OK: OK 1/3 49s", "OK: OK 0/3 49s", "OVER_LIMIT: OVER_LIMIT 0/3 49s"} {
		expect(t, s, request(descriptor("tenant=t")), want)
	}
	if got := headers(t, s, request(descriptor("tenant=t"))); got["Rule"] != "d.tenant/3-per-minute" {
		t.Errorf("the headers are %v", got)
	}
	// Refused requests cost nothing under the day's limit, which a longer wait tells of once it refuses, too.
	expect(t, s, request(costing(descriptor("tenant=t"), 8)), "OVER_LIMIT: OVER_LIMIT 0/10 13h59m49s")
	for _, want := range []string{"d.tenant/tried near_limit 1", "d.tenant/tried shadow_over_limit 5", "d.tenant/day ok 5", "d.tenant/3-per-minute ok 2", "d.tenant/3-per-minute near_limit 1"} {
		path, n, _ := strings.Cut(want, " ")
		result, count, _ := strings.Cut(n, " ")
		if fmt.Sprint(results[path+" "+result]) != count {
			t.Errorf("want %s of %v", want, results)
		}
	}
	expect(t, s, request(costing(descriptor("tenant=u"), 3), descriptor("boost=x")), "OK: OK 0/3 49s, OK 4294967295")
}

func TestAnExemptRequestIsFree(t *testing.T) {
	results := map[string]int{}
	s := newService(t, `
domain: d
descriptors:
  - {key: remote_address, cidrs: [10.0.0.0/8], exempt: true}
  - {key: remote_address, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: path, rate_limit: {unit: minute, requests_per_unit: 1}}
`, rls.Options{Events: rls.Events{Decided: func(d rls.Decided) { results[d.Path+" "+string(d.Result)]++ }}})
	for range 3 {
		expect(t, s, request(descriptor("remote_address=10.1.2.3"), limited(descriptor("path=/"), 0, typev3.RateLimitUnit_DAY)), "OK: OK, OK")
	}
	expect(t, s, request(descriptor("remote_address=192.0.2.1"), descriptor("path=/")), "OK: OK 0/1 49s, OK 0/1 49s")
	if len(results) != 3 || results["d.remote_address_{10.0.0.0/8} exempt"] != 3 {
		t.Errorf("the results are %v", results)
	}
}

func TestValuesThatAreTooManyShareACounter(t *testing.T) {
	overflows := 0
	s := newService(t, `
domain: d
descriptors:
  - {key: path, max_values: 100, rate_limit: {unit: minute, requests_per_unit: 50}}
`, rls.Options{Events: rls.Events{Overflow: func(string, string) { overflows++ }}})
	refused := 0
	for i := range 300 {
		if strings.HasPrefix(ask(t, s, request(descriptor(fmt.Sprint("path=/", i)))), "OVER_LIMIT") {
			refused++
		}
	}
	// One in a hundred may be taken for a value that was seen.
	if refused < 140 || refused > 150 || overflows < 190 || overflows > 200 {
		t.Errorf("of 300 values %d overflowed and %d were refused", overflows, refused)
	}
	expect(t, s, request(costing(descriptor("path=/7"), 49)), "OK: OK 0/50 49s")
}

func TestBuckets(t *testing.T) {
	s := newService(t, listRules, rls.Options{})
	expect(t, s, request(costing(descriptor("tenant=t user=u"), 2)), "OK: OK 0/2 1s")
	expect(t, s, request(descriptor("tenant=t user=u")), "OVER_LIMIT: OVER_LIMIT 0/2 1s")
	expect(t, s, request(costing(descriptor("tenant=t hook=h"), 5)), "OK: OK 0/2 3s")
	expect(t, s, request(descriptor("tenant=t hook=h")), "OVER_LIMIT: OVER_LIMIT 0/2 1s")
	// A burst that was not written follows the number in the request; one that was stays.
	second := typev3.RateLimitUnit_SECOND
	expect(t, s, request(costing(limited(descriptor("tenant=v user=u"), 7, second), 7)), "OK: OK 0/7 1s")
	expect(t, s, request(costing(limited(descriptor("tenant=v hook=h"), 7, second), 6)), "OVER_LIMIT: OVER_LIMIT 0/7 1s") // never fits
}

const metadataRules = `
domain: d
descriptors:
  - {key: a, rate_limit: {unit: hour, requests_per_unit: 5}, metadata: {name: one, deep: {left: 1}}}
  - {key: b, rate_limit: {unit: hour, requests_per_unit: 0}, metadata: {name: two, b: 1}}
  - {key: c, detailed_metric: true, rate_limit: {unit: hour, requests_per_unit: 5}, metadata: {name: three, deep: {right: [2]}}}
  - {key: s, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 0}, metadata: {shadow: true}}
`

func TestDynamicMetadata(t *testing.T) {
	s := newService(t, metadataRules, rls.Options{DynamicMetadata: true})
	metadata := func(req *ratelimit.RateLimitRequest) map[string]any {
		answer, err := s.ShouldRateLimit(context.Background(), req)
		if err != nil {
			t.Fatal(err)
		}
		return answer.GetDynamicMetadata().AsMap()
	}
	req := request(descriptor("b=x"), costing(descriptor("a=x z="), 2), descriptor("a=x"), descriptor("c=x"), descriptor("s=x"))
	req.HitsAddend = 3
	got := metadata(req)
	want := map[string]any{
		"domain": "d", "hitsAddend": 3.0, "denied_by": "d.b", "would_deny": []any{"d.s"},
		"descriptors": []any{
			map[string]any{"entries": []any{"b=x"}}, map[string]any{"entries": []any{"a=x", "z="}, "hitsAddend": 2.0},
			map[string]any{"entries": []any{"a=x"}}, map[string]any{"entries": []any{"c=x"}},
			map[string]any{"entries": []any{"s=x"}},
		},
		"metadata": map[string]any{
			"name": "one", "shadow": true, "deep": map[string]any{"left": 1.0, "right": []any{2.0}},
		},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("\n got %v\nwant %v", got, want)
	}
	alone := metadata(request(descriptor("a=x")))["metadata"]
	if fmt.Sprint(alone) != "map[deep:map[left:1] name:one]" {
		t.Errorf("an earlier answer's metadata is left in a rule: %v", alone)
	}
	if m := metadata(request(limited(descriptor("q=x"), 4, typev3.RateLimitUnit_DAY)))["descriptors"]; !strings.Contains(
		fmt.Sprint(m), "requests_per_unit:4") {
		t.Errorf("the request's limit is not told: %v", m)
	}
}

// TestPoliciesAnswerForAStoreThatIsNotThere uses a real store on a port where nobody listens.
func TestPoliciesAnswerForAStoreThatIsNotThere(t *testing.T) {
	store, err := redisstore.Open(redisstore.Options{Address: "127.0.0.1:1", Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	degraded := map[limiter.FailurePolicy]int{}
	var failed []string
	s := serviceOver(t, store, `
domain: d
descriptors:
  - {key: allow, on_store_failure: allow, rate_limit: {unit: minute, requests_per_unit: 0}}
  - {key: deny, on_store_failure: deny, rate_limit: {unit: minute, requests_per_unit: 9}}
  - {key: error, on_store_failure: error, rate_limit: {unit: minute, requests_per_unit: 9}}
  - {key: shadow, shadow_mode: true, on_store_failure: error, rate_limit: {unit: minute, requests_per_unit: 9}}
`, rls.Options{Events: rls.Events{
		Degraded: func(_ string, p limiter.FailurePolicy, _ string) { degraded[p]++ },
		Decided: func(d rls.Decided) {
			if d.Result == rls.ResultFailed {
				failed = append(failed, fmt.Sprint(d.Path, " ", d.Cost))
			}
		},
	}})
	expect(t, s, request(descriptor("other=x")), "OK: OK") // the store isn't asked
	expect(t, s, request(descriptor("allow=x")), "OK: OK")
	expect(t, s, request(descriptor("deny=x")), "OVER_LIMIT: OVER_LIMIT 0/9 0s")
	expect(t, s, request(descriptor("error=x")), "Unavailable: the rate limit store is not available")
	expect(t, s, request(descriptor("shadow=x")), "OK: OK")
	expect(t, s, request(descriptor("allow=x"), descriptor("error=x")), "Unavailable: the rate limit store is not available")
	expect(t, s, request(descriptor("deny=x"), descriptor("error=x")), "OVER_LIMIT: OVER_LIMIT 0/9 0s, OK")
	if want := []string{"d.error 1", "d.allow 1", "d.error 1"}; !slices.Equal(failed, want) {
		t.Errorf("told of %q that failed, want %q", failed, want)
	}
	if degraded[limiter.FailAllow] != 2 || degraded[limiter.FailDeny] != 2 || degraded[limiter.FailError] != 4 {
		t.Errorf("degraded: %v", degraded)
	}
}

func TestEventsTellWhatHappened(t *testing.T) {
	var log []string
	note := func(format string, args ...any) { log = append(log, fmt.Sprintf(format, args...)) }
	s := newService(t, rules, rls.Options{Events: rls.Events{
		Answered:    func(a rls.Answered) { note("request %q %s %t", a.Domain, a.Code, a.OverLimit) },
		Decided:     func(d rls.Decided) { note("%s %s %s %d %d %d", d.Domain, d.Path, d.Result, d.Cost, d.Over, d.Near) },
		Unmatched:   func(u rls.Unmatched) { note("unmatched %q", u.Domain) },
		BadOverride: func(domain string) { note("bad override %q", domain) },
	}})
	ask(t, s, request(descriptor("three=x"), descriptor("free=x"), descriptor("other=x"), descriptor("none=x")))
	nobody := request(limited(descriptor("three=x"), 1, 0))
	nobody.Domain = "nobody"
	ask(t, s, nobody)
	ask(t, s, request())
	want := []string{
		`unmatched "d"`, "d d.three ok 0 0 0", "d d.free unlimited 1 0 0", "d d.none over_limit 1 1 0", `request "d" OK true`,
		`bad override ""`, `unmatched ""`, `request "" OK false`, `request "" InvalidArgument false`,
	}
	if fmt.Sprint(log) != fmt.Sprint(want) {
		t.Errorf("\n got %q\nwant %q", log, want)
	}
}

func TestLimitsOfRequestsAreToldByTheirValuesInCompatModeOnly(t *testing.T) {
	for compat, want := range map[bool]string{
		false: "d d._override ok <nil> / d d.three ok <nil>",
		true:  "d d._override ok &{d.new_10.0.0.1.b.c_1 [new_10.0.0.1 b]} / d d._override ok &{d.three_x [three_x ]}",
	} {
		var told []string
		s := newService(t, rules, rls.Options{Compat: compat, Events: rls.Events{Decided: func(d rls.Decided) {
			told = append(told, fmt.Sprint(d.Domain, " ", d.Path, " ", d.Result, " ", d.Values))
		}}})
		ask(t, s, request(limited(descriptor("new=10.0.0.1 b= c=1"), 5, typev3.RateLimitUnit_HOUR)))
		ask(t, s, request(limited(descriptor("three=x"), 5, typev3.RateLimitUnit_HOUR)))
		if got := strings.Join(told, " / "); got != want {
			t.Errorf("compat: %t\n got %s\nwant %s", compat, got, want)
		}
	}
}
