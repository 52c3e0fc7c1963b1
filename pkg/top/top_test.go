package top_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/memstore"
	"github.com/envoy-rls/envoy-rls/pkg/rls"
	"github.com/envoy-rls/envoy-rls/pkg/storetest"
	"github.com/envoy-rls/envoy-rls/pkg/top"
)

const rules = `
domain: shop
descriptors:
  - {key: user, rate_limit: {unit: hour, requests_per_unit: 1000000}}
  - {key: none, rate_limit: {unit: hour, requests_per_unit: 0}}
  - {key: trial, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 0}}
`

// watched is a service whose calls are looked at.
type watched struct {
	t       testing.TB
	service *rls.Service
	top     *top.Top
	clock   *storetest.Clock
}

func start(t testing.TB) *watched {
	t.Helper()
	w := &watched{t: t, clock: &storetest.Clock{}}
	w.clock.Set(time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC))
	w.top = top.New(w.clock.Now())
	w.service = rls.New(memstore.New(memstore.Options{Now: w.clock.Now}), rls.Options{
		Now: w.clock.Now, Observe: func(_ context.Context, o rls.Outcome) { w.top.Observe(o) },
	})
	w.service.SetRules(compile(t))
	return w
}

func compile(t testing.TB) *descriptors.Ruleset {
	t.Helper()
	compiled, problems := descriptors.Compile([]descriptors.File{{Name: "r.yaml", Data: []byte(rules)}}, descriptors.Options{})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return compiled
}

// request has a descriptor of one entry for each key=value.
func request(entries ...string) *ratelimit.RateLimitRequest {
	req := &ratelimit.RateLimitRequest{Domain: "shop"}
	for _, text := range entries {
		key, value, _ := strings.Cut(text, "=")
		req.Descriptors = append(req.Descriptors, &common.RateLimitDescriptor{
			Entries: []*common.RateLimitDescriptor_Entry{{Key: key, Value: value}},
		})
	}
	return req
}

func (w *watched) ask(n int, entries ...string) {
	w.t.Helper()
	req := request(entries...)
	for range n {
		if _, err := w.service.ShouldRateLimit(context.Background(), req); err != nil {
			w.t.Fatal(err)
		}
	}
}

func words(rows []top.Row) string {
	list := make([]string, len(rows))
	for i, r := range rows {
		list[i] = fmt.Sprintf("%d %s %v", r.Count, r.Rule, r.Entries)
		if r.WouldRefuse {
			list[i] += " tried"
		}
	}
	return strings.Join(list, ", ")
}

func (w *watched) expect(want ...string) {
	w.t.Helper()
	r := w.top.Report(w.clock.Now(), 3)
	got := []string{fmt.Sprintf("%d of %d in %s", r.Refused, r.Calls, r.Span), words(r.Rules), words(r.Values), words(r.Counters)}
	for i := range want {
		if got[i] != want[i] {
			w.t.Errorf("\n got %s\nwant %s", got[i], want[i])
		}
	}
}

func TestWhoIsRefusedAndWhatIsCountedMost(t *testing.T) {
	w := start(t)
	w.ask(5, "none=ann", "other=x")
	w.ask(3, "none=bob")
	w.ask(6, "trial=tom")
	w.ask(9, "user=u", "user=v")
	w.ask(2, "user=w")
	w.clock.Advance(10 * time.Second)
	w.expect("8 of 25 in 10s",
		"8 shop.none [], 6 shop.trial [] tried",
		"6 shop.trial [{trial tom}] tried, 5 shop.none [{none ann}], 3 shop.none [{none bob}]",
		"9 shop.user [{user u}], 9 shop.user [{user v}], 6 shop.trial [{trial tom}]")
	w.clock.Advance(25 * time.Second)
	w.ask(4, "none=bob")
	w.expect("12 of 29 in 35s", "12 shop.none [], 6 shop.trial [] tried",
		"7 shop.none [{none bob}], 6 shop.trial [{trial tom}] tried, 5 shop.none [{none ann}]")
	w.clock.Advance(25 * time.Second)
	w.expect("4 of 4 in 30s", "4 shop.none []", "4 shop.none [{none bob}]", "4 shop.none [{none bob}]")
	w.clock.Advance(time.Hour)
	w.expect("0 of 0 in 30s", "", "", "")
}

func TestOfManyCallsSomeStandForAll(t *testing.T) {
	w := start(t)
	for range 3 { // seconds
		for i := range 20_000 {
			w.ask(1, fmt.Sprint("user=", i%100))
		}
		w.ask(10, "none=ann")
		w.clock.Advance(time.Second)
	}
	r := w.top.Report(w.clock.Now(), 1)
	if got := float64(r.Calls); math.Abs(got-60_030) > 9000 {
		t.Errorf("60030 calls are said to be %v", got)
	}
	if words(r.Values) != "30 shop.none [{none ann}]" {
		t.Errorf("the few that are refused are not lost: %s", words(r.Values))
	}
}

func TestLongValuesAreCut(t *testing.T) {
	w := start(t)
	w.ask(1, "none="+strings.Repeat("x", 5000))
	row := w.top.Report(w.clock.Now(), 1).Values[0]
	if n := len(row.Entries[0].Value); n != 128 || !row.Cut {
		t.Errorf("%d bytes are kept, cut: %t", n, row.Cut)
	}
}

func TestTheStoresTimesAreThoseOfLate(t *testing.T) {
	w := start(t)
	for i := range 100 {
		w.top.StoreCalled(w.clock.Now(), time.Duration(i+1)*time.Millisecond)
	}
	r := w.top.Report(w.clock.Now(), 1)
	if r.StoreCalls != 100 || r.Median != 51*time.Millisecond || r.P99 != 100*time.Millisecond {
		t.Errorf("%d calls, median %s, 99%% %s", r.StoreCalls, r.Median, r.P99)
	}
	w.clock.Advance(2 * top.Period)
	if r := w.top.Report(w.clock.Now(), 1); r.StoreCalls != 0 || r.P99 != 0 {
		t.Errorf("they are %d, 99%% %s", r.StoreCalls, r.P99)
	}
}
