package rls_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/redisstore"
	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

const observedRules = `
domain: d
descriptors:
  - {key: three, rate_limit: {unit: hour, requests_per_unit: 3}}
  - {key: none, rate_limit: {name: closed, unit: hour, requests_per_unit: 0}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 0}}
  - {key: free, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 9}}
  - {key: spent, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 0}}
  - key: two
    rate_limits:
      - {name: now, unit: hour, requests_per_unit: 9}
      - {name: proposed, unit: day, requests_per_unit: 0, shadow_mode: true}
`

// outcomeWords are an outcome as a line.
func outcomeWords(o rls.Outcome) string {
	verdicts := [...]string{rls.Passes: "passes", rls.Refuses: "refuses", rls.WouldRefuse: "would refuse"}
	words := []string{fmt.Sprint(o.Sent(), " ", o.Code, " ", o.OverLimit, " ", o.Denies())}
	for list := range o.Descriptors {
		words = append(words, fmt.Sprint(list))
	}
	for j := range o.Limits {
		words = append(words, fmt.Sprintf("%s %s cost %d %s %t %d", j.Path, j.Name, j.Cost, verdicts[j.Verdict], j.Known, j.Remaining))
	}
	if j, ok := o.Strictest(); ok {
		words = append(words, "strictest "+j.Name)
	}
	if would := o.WouldRefuse(); would != nil {
		words = append(words, "would "+strings.Join(would, " "))
	}
	if o.StoreFailure() != "" {
		words = append(words, fmt.Sprint(o.StoreFailure(), o.Policies()))
	}
	return strings.Join(words, ", ")
}

func TestAnObserverIsToldWhatEachLimitDid(t *testing.T) {
	for _, c := range []struct {
		options rls.Options
		req     *ratelimit.RateLimitRequest
		want    string
	}{
		{rls.Options{}, request(costing(descriptor("three=x"), 2), descriptor("other=y")),
			"d OK false false, [{three x}], [{other y}], d.three d.three cost 2 passes true 1, strictest d.three"},
		{rls.Options{}, request(descriptor("three=x"), descriptor("none=y")),
			"d OK true true, [{three x}], [{none y}], d.three d.three cost 1 passes true 3, d.none closed cost 1 refuses true 0, strictest closed"},
		{rls.Options{}, request(descriptor("shadow=x"), descriptor("shadow=y"), descriptor("two=x")),
			"d OK false true, [{shadow x}], [{shadow y}], [{two x}], d.shadow d.shadow cost 1 would refuse true 0, " +
				"d.shadow d.shadow cost 1 would refuse true 0, d.two/now now cost 1 passes true 8, " +
				"d.two/proposed proposed cost 1 would refuse true 0, strictest now, would d.shadow proposed"},
		{rls.Options{}, request(descriptor("free=x"), descriptor("spent=x")),
			"d OK false false, [{free x}], [{spent x}], d.free d.free cost 1 passes true 8, d.spent d.spent cost 1 passes true 0, strictest d.free"},
		{rls.Options{}, request(descriptor("spent=x")),
			"d OK true true, [{spent x}], d.spent d.spent cost 1 refuses true 0, strictest d.spent"},
		{rls.Options{Shadow: true}, request(descriptor("none=x")),
			"d OK false true, [{none x}], d.none closed cost 1 would refuse true 0, strictest closed, would closed"},
		{rls.Options{}, request(limited(descriptor("other=x"), 0, typev3.RateLimitUnit_HOUR)),
			"d OK true true, [{other x}], d._override override cost 1 refuses true 0, strictest override"},
		{rls.Options{}, &ratelimit.RateLimitRequest{Domain: "a client's", Descriptors: request(descriptor("a=b")).GetDescriptors()},
			"a client's OK false false, [{a b}]"},
		{rls.Options{}, request(), "d InvalidArgument false false"},
	} {
		var seen []string
		c.options.Observe = func(_ context.Context, o rls.Outcome) { seen = append(seen, outcomeWords(o)) }
		_ = ask(t, newService(t, observedRules, c.options), c.req)
		if len(seen) != 1 || seen[0] != c.want {
			t.Errorf("%v\n got %q\nwant %s", c.req, seen, c.want)
		}
	}
}

func TestAnObserverIsToldOfTheStoresFailure(t *testing.T) {
	store, err := redisstore.Open(redisstore.Options{Address: "127.0.0.1:1", Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	for policy, want := range map[string]string{
		"allow": "d OK false false, [{k v}], d.k d.k cost 1 passes false 0, strictest d.k, connection[allow]",
		"deny":  "d OK true true, [{k v}], d.k d.k cost 1 refuses false 0, strictest d.k, connection[deny]",
		"error": "d Unavailable false false, [{k v}], connection[error]",
	} {
		var seen []string
		s := rls.New(store, rls.Options{Observe: func(_ context.Context, o rls.Outcome) { seen = append(seen, outcomeWords(o)) }})
		compiled, problems := descriptors.Compile([]descriptors.File{{Name: "r.yaml", Data: []byte(
			"domain: d\ndescriptors: [{key: k, on_store_failure: " + policy + ", rate_limit: {unit: hour, requests_per_unit: 1}}]")}},
			descriptors.Options{})
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		s.SetRules(compiled)
		_ = ask(t, s, request(descriptor("k=v")))
		if len(seen) != 1 || seen[0] != want {
			t.Errorf("%s\n got %q\nwant %s", policy, seen, want)
		}
	}
}

func TestMetadataNamesWhatRefusedAndWhatWouldHave(t *testing.T) {
	for _, c := range []struct {
		options rls.Options
		req     *ratelimit.RateLimitRequest
		want    string
	}{
		{rls.Options{}, request(descriptor("none=x"), descriptor("shadow=x")), "map[]"},
		{rls.Options{VerdictMetadata: true}, request(descriptor("three=x")), "map[]"},
		{rls.Options{VerdictMetadata: true}, request(descriptor("none=x"), descriptor("shadow=x")), "map[denied_by:closed would_deny:[d.shadow]]"},
		{rls.Options{VerdictMetadata: true, Compat: true}, request(descriptor("two=x"), descriptor("shadow=x")), "map[would_deny:[proposed d.shadow]]"},
		{rls.Options{VerdictMetadata: true, Shadow: true}, request(descriptor("none=x")), "map[would_deny:[closed]]"},
		{rls.Options{DynamicMetadata: true}, request(descriptor("two=x")), "map[descriptors:[map[entries:[two=x]]] domain:d would_deny:[proposed]]"},
		{rls.Options{DynamicMetadata: true, Compat: true}, request(descriptor("none=x")), "map[descriptors:[map[entries:[none=x]]] domain:d]"},
	} {
		answer, err := newService(t, observedRules, c.options).ShouldRateLimit(context.Background(), c.req)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(answer.GetDynamicMetadata().AsMap()); got != c.want {
			t.Errorf("%+v %v\n got %s\nwant %s", c.options, c.req, got, c.want)
		}
	}
}
