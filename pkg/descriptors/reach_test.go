package descriptors_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
)

// patterns reads entries as in "user, plan=free|gold": those without values can have any.
func patterns(text string) []descriptors.Pattern {
	var list []descriptors.Pattern
	for entry := range strings.SplitSeq(text, ", ") {
		key, values, some := strings.Cut(entry, "=")
		p := descriptors.Pattern{Key: key}
		if some {
			p.Values = strings.Split(values, "|")
		}
		list = append(list, p)
	}
	return list
}

func TestReachFindsWhatSomeDescriptorMatches(t *testing.T) {
	d := compile(t, descriptors.Options{}, `
domain: shop
keys:
  Case: {lowercase: true}
descriptors:
  - key: user
    rate_limit: {unit: day, requests_per_unit: 1}
    descriptors:
      - {key: path, rate_limit: {unit: day, requests_per_unit: 1}}
  - key: user
    value: admin
    descriptors:
      - {key: path, value: /a, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: path, value: "/api/*", rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: plan, values: [free, trial], rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: addr, cidrs: [10.0.0.0/8], rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: Case, value: Gold, rate_limit: {unit: day, requests_per_unit: 1}}`).Domain("shop")
	for _, test := range []struct{ patterns, rules, why string }{
		{"user", "shop.user", ""},
		{"user=ann", "shop.user", ""},
		{"user=admin", "", "the rules go on below it with `path`"},
		{"user, path", "shop.user.path shop.user_admin.path_/a", ""},
		{"user, path=/b", "shop.user.path", ""},
		{"user=admin, path=/b", "", "`path` has no rule for this value"},
		{"user=admin|ann, path=/b", "shop.user.path", ""},
		{"path", "shop.path_/api/*", ""},
		{"path=/api/x", "shop.path_/api/*", ""},
		{"path=/x", "", "`path` has no rule for this value"},
		{"plan", "shop.plan_{free,trial}", ""},
		{"plan=trial|gold", "shop.plan_{free,trial}", ""},
		{"addr", "shop.addr_{10.0.0.0/8}", ""},
		{"addr=10.1.2.3", "shop.addr_{10.0.0.0/8}", ""},
		{"addr=11.1.2.3", "", "`addr` has no rule for this value"},
		{"Case=GOLD", "shop.Case_gold", ""},
		{"usr", "", "did you mean `user`?"},
	} {
		rules, why := d.Reach(patterns(test.patterns))
		var paths []string
		for _, r := range rules {
			paths = append(paths, r.Path)
		}
		slices.Sort(paths)
		if got := strings.Join(paths, " "); got != test.rules || !strings.HasPrefix(why, test.why) || (why == "") != (test.why == "") {
			t.Errorf("%s reaches %q, %q", test.patterns, got, why)
		}
	}
}

func TestARulesPlaceIsInItsFile(t *testing.T) {
	manifest := "kind: ConfigMap\ndata:\n  shop.yaml: |\n    domain: shop\n    descriptors:\n      - {key: user, rate_limit: {unit: day, requests_per_unit: 1}}\n"
	rs, problems := descriptors.Compile(descriptors.Unpack(descriptors.File{Name: "m.yaml", Data: []byte(manifest)}), descriptors.Options{})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	for want, p := range map[string]descriptors.Problem{
		"m.yaml:4:13: domain: ":    rs.Domain("shop").Place(),
		"m.yaml:6:10: shop.user: ": rs.Domain("shop").Rules()[0].Place(),
	} {
		if p.String() != want {
			t.Errorf("%q is not %q", p, want)
		}
	}
}
