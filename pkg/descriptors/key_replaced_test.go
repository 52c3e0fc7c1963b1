package descriptors_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// asReplaced is a rule file's rules in the key format of the replaced service, of domain shop.
func asReplaced(t *testing.T, text string) *descriptors.Domain {
	t.Helper()
	return compile(t, descriptors.Options{ReplacedNames: true}, text).Domain("shop")
}

func TestReplacedNamesAreThoseOfTheReplacedService(t *testing.T) {
	domain := asReplaced(t, `
domain: shop
descriptors:
  - key: path
    value: "/pub/*"
    share_threshold: true
    descriptors: [{key: user, rate_limit: {unit: minute, requests_per_unit: 1}}]
`)
	shared := entries("path=/pub/x user=ann")
	now := time.Unix(1796007622, 999)
	for _, c := range []struct {
		counter descriptors.Counter
		unit    descriptors.Unit
		want    string
	}{
		{descriptors.Counter{Entries: entries("user=ann path=/a")}, descriptors.Minute, "shop_user_ann_path_/a_1796007600"},
		{descriptors.Counter{Entries: entries("user=ann path=/a")}, descriptors.Second, "shop_user_ann_path_/a_1796007622"},
		{descriptors.Counter{Entries: entries("user=ann")}, descriptors.Hour, "shop_user_ann_1796007600"},
		{descriptors.Counter{Entries: entries("user=ann")}, descriptors.Day, "shop_user_ann_1795996800"},
		{descriptors.Counter{Entries: entries("user=ann")}, descriptors.Week, "shop_user_ann_1795651200"},
		{descriptors.Counter{Entries: entries("user=ann")}, descriptors.Month, "shop_user_ann_1793664000"},
		{descriptors.Counter{Entries: entries("user=ann")}, descriptors.Year, "shop_user_ann_1766016000"},
		{descriptors.Counter{Entries: entries("user=")}, descriptors.Minute, "shop_user__1796007600"},
		{descriptors.Counter{}, descriptors.Minute, "shop_1796007600"},
		{descriptors.Counter{Entries: shared, Rule: domain.Match(shared)}, descriptors.Minute, "shop_path_/pub/*_user_ann_1796007600"},
		{descriptors.Counter{Entries: shared}, descriptors.Minute, "shop_path_/pub/x_user_ann_1796007600"},
		{descriptors.Counter{Entries: shared, Rule: domain.Match(shared), Overflow: true}, descriptors.Minute,
			"shop_!shop.path_/pub/*.user_1796007600"},
	} {
		c.counter.Domain = "shop"
		period, _ := c.unit.Period(1)
		if got := string(c.counter.AppendReplacedName(nil, period, now)); got != c.want {
			t.Errorf("the name is %s, want %s", got, c.want)
		}
	}
}

func TestOnlyLimitsOfTheReplacedServiceHaveItsNames(t *testing.T) {
	domain := asReplaced(t, `
domain: shop
descriptors:
  - {key: plain, rate_limit: {unit: week, requests_per_unit: 1}}
  - {key: multiplied, rate_limit: {unit: second, unit_multiplier: 60, requests_per_unit: 1}}
  - {key: sliding, rate_limit: {unit: day, requests_per_unit: 1, algorithm: sliding_window}}
  - key: several
    rate_limits:
      - {unit: hour, requests_per_unit: 1, shadow_mode: true}
      - {unit: hour, requests_per_unit: 1, algorithm: token_bucket}
      - {unit: second, requests_per_unit: 1}
      - {unit: minute, requests_per_unit: 1}
`)
	for key, want := range map[string][]bool{
		"plain": {true}, "multiplied": {false}, "sliding": {false}, "several": {false, true, false, false},
	} {
		var got []bool
		for _, l := range domain.Match([]descriptors.Entry{{Key: key}}).Limits {
			got = append(got, l.Algorithm == limiter.NamedWindow)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %t, want %t", key, got, want)
		}
	}
}

func TestRulesWhoseReplacedNamesAreTheSameAreDoubted(t *testing.T) {
	const rules = `domain: shop
descriptors:
  - {key: a, value: b_c, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: a_b, value: c, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: a, value: b, descriptors: [{key: d, rate_limit: {unit: minute, requests_per_unit: 1}}]}
  - {key: a_b_d, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: a_b, value: d, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: e, value: f, descriptors: [{key: g, rate_limit: {unit: hour, requests_per_unit: 1}}]}
  - {key: e_f, value: g, rate_limit: {unit: hour, unit_multiplier: 2, requests_per_unit: 1}}
`
	files := []descriptors.File{{Name: "a.yaml", Data: []byte(rules)}}
	if _, problems := descriptors.Compile(files, descriptors.Options{}); len(problems) > 0 {
		t.Errorf("in the format of this service the problems are %v", problems)
	}
	_, problems := descriptors.Compile(files, descriptors.Options{ReplacedNames: true})
	want := []string{
		"a.yaml:4:6: warning: shop.a_b_c: in the key format of the replaced service it has the counter of shop.a_b_c (3:6); ",
		"a.yaml:6:6: warning: shop.a_b_d: in the key format of the replaced service it has the counter of shop.a_b.d (5:39) where windows of both begin together; ",
	}
	if !slices.EqualFunc(problems, want, func(p descriptors.Problem, w string) bool { return strings.HasPrefix(p.String(), w) }) {
		t.Errorf("the problems are %v", problems)
	}
}
