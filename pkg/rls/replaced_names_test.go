package rls_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/envoy-rls/envoy-rls/pkg/limiter"
	"github.com/envoy-rls/envoy-rls/pkg/memstore"
	"github.com/envoy-rls/envoy-rls/pkg/rls"
	"github.com/envoy-rls/envoy-rls/pkg/storetest"
)

// listing is a store that lists the counters that it is asked for.
type listing struct {
	limiter.Store
	keys []string
}

func (l *listing) Decide(ctx context.Context, b *limiter.Batch) error {
	for i := range b.Hits {
		l.keys = append(l.keys, strings.Clone(b.Hits[i].Key))
	}
	return l.Store.Decide(ctx, b)
}

const replacedRules = `
domain: d
descriptors:
  - {key: user, rate_limit: {unit: minute, requests_per_unit: 2}}
  - key: path
    rate_limits:
      - {unit: hour, requests_per_unit: 9, algorithm: sliding_window}
      - {unit: second, requests_per_unit: 9}
  - {key: many, max_values: 1, rate_limit: {unit: minute, requests_per_unit: 1000}}
`

func TestCountersHaveTheNamesOfTheReplacedServiceWhereAsked(t *testing.T) {
	clock := &storetest.Clock{}
	clock.Set(at)
	store := &listing{Store: memstore.New(memstore.Options{Now: clock.Now})}
	s := serviceOver(t, store, replacedRules, rls.Options{Now: clock.Now, ReplacedNames: true})
	minute, second := at.Unix()-11, at.Unix()
	hourly, twice := limited(descriptor("user=ann"), 5, typev3.RateLimitUnit_HOUR), limited(descriptor("user=ann"), 5, typev3.RateLimitUnit_HOUR)
	twice.Limit.UnitMultiplier = wrapperspb.UInt32(2)
	expect(t, s, request(descriptor("user=ann"), descriptor("path=/x"), hourly, twice, limited(descriptor("a=b c="), 5, typev3.RateLimitUnit_MINUTE)),
		"OK: OK 1/2 49s, OK 8/9 59m49s, OK 3/5 59m49s, OK 4/5 1h59m49s, OK 4/5 49s")
	clock.Advance(time.Minute)
	expect(t, s, request(descriptor("user=ann")), "OK: OK 1/2 49s")
	want := []string{
		fmt.Sprintf("d_user_ann_%d", minute), "1:d4:path=2:/x/sliding_window3600", fmt.Sprintf("d_path_/x_%d", second),
		fmt.Sprintf("d_user_ann_%d", minute), // at a full hour, the minute's counter is the hour's
		"1:d4:user=3:ann/fixed_window7200", fmt.Sprintf("d_a_b_c__%d", minute),
		fmt.Sprintf("d_user_ann_%d", minute+60),
	}
	if !slices.Equal(store.keys, want) {
		t.Errorf("the counters are\n%q, want\n%q", store.keys, want)
	}
}

func TestValuesThatAreTooManyShareACounterUnderReplacedNames(t *testing.T) {
	store := &listing{Store: memstore.New(memstore.Options{})}
	s := serviceOver(t, store, replacedRules, rls.Options{ReplacedNames: true})
	for i := range 300 {
		ask(t, s, request(descriptor(fmt.Sprint("many=", i))))
	}
	if n := len(slices.Compact(slices.Sorted(slices.Values(store.keys)))); n > 10 || !strings.HasPrefix(slices.Max(store.keys), "d_") {
		t.Errorf("300 values have %d counters", n)
	}
}
