package descriptors_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

const overriddenRules = `
domain: d
keys: {tenant: &low {lowercase: true}, org: *low}
descriptors:
  - {key: tenant, rate_limit: {unit: minute, requests_per_unit: 3}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: probe, exempt: true}
  - key: path
    rate_limits:
      - {name: slow, unit: second, requests_per_unit: 5, algorithm: token_bucket, burst: 20}
      - {name: long, unit: hour, requests_per_unit: 100}
  - {key: bucket, rate_limit: {unit: second, requests_per_unit: 5, algorithm: token_bucket}}
  - {key: region, value: eu, rate_limit: {unit: minute, requests_per_unit: 3}}
  - {key: file, value: "*.png", rate_limit: {unit: minute, requests_per_unit: 3}}
  - {key: org, value: ACME, descriptors: [{key: org, rate_limit: {unit: minute, requests_per_unit: 3}}]}
`

// words are what a rule does, in words.
func words(r *descriptors.Rule) string {
	return fmt.Sprintf("%s, role %d, on failure %s", strings.Join(r.Words(), " + "), r.Role, r.OnFailure)
}

func TestOverridesStandInThePlaceOfRules(t *testing.T) {
	rules := compile(t, descriptors.Options{}, overriddenRules)
	limit := descriptors.Override{Kind: descriptors.OverrideLimit, Requests: 500, Unit: descriptors.Minute}
	for _, c := range []struct {
		rule, entries string
		o             descriptors.Override
		want          string
	}{
		{"d.tenant", "tenant=a", descriptors.Override{Kind: descriptors.OverrideShadow}, "3 per minute for each distinct tenant, fixed window; tried out, never refused, role 2, on failure error"},
		{"d.tenant", "tenant=a", descriptors.Override{Kind: descriptors.OverrideUnlimited}, "no limit, role 0, on failure error"},
		{"d.tenant", "tenant=a", descriptors.Override{Kind: descriptors.OverrideDeny}, "0 per minute for each distinct tenant, fixed window; refused requests cost nothing, role 0, on failure deny"},
		{"d.tenant", "tenant=a", limit, "500 per minute for each distinct tenant, fixed window; refused requests cost nothing, role 0, on failure error"},
		{"d.free", "free=a", limit, "500 per minute for each distinct free, fixed window; refused requests cost nothing, role 0, on failure error"},
		{"d.probe", "probe=a", descriptors.Override{Kind: descriptors.OverrideDeny}, "0 per minute for each distinct probe, fixed window; refused requests cost nothing, role 0, on failure deny"},
		{"d.path/slow", "path=a", limit, "500 per minute for each distinct path, token bucket of 20; refused requests cost nothing + 100 per hour for each distinct path, fixed window; refused requests cost nothing, role 0, on failure error"},
		{"d.path/slow", "path=a", descriptors.Override{Kind: descriptors.OverrideUnlimited}, "100 per hour for each distinct path, fixed window; refused requests cost nothing, role 0, on failure error"},
		{"d.path/slow", "path=a", descriptors.Override{Kind: descriptors.OverrideShadow}, "100 per hour for each distinct path, fixed window; refused requests cost nothing + 5 per second for each distinct path, token bucket of 20; tried out, never refused, role 0, on failure error"},
		{"d.bucket", "bucket=a", limit, "500 per minute for each distinct bucket, token bucket of 500; refused requests cost nothing, role 0, on failure error"},
	} {
		c.o.ID, c.o.Domain, c.o.Rule = "x", "d", c.rule
		with, problems := rules.WithOverrides([]descriptors.Override{c.o})
		if problems[0] != nil {
			t.Errorf("%s on %s: %v", c.o.Words(), c.rule, problems[0])
			continue
		}
		domain, list := with.Domain("d"), entries(c.entries)
		plain := domain.Match(list)
		before := words(plain)
		r := domain.Overridden(plain, list)
		if got := words(r); got != c.want || r.Override != "x" || r.Path != plain.Path {
			t.Errorf("%s on %s makes\n%s, want\n%s", c.o.Words(), c.rule, got, c.want)
		}
		for i := range r.Limits {
			if err := r.Limits[i].Validate(); err != nil {
				t.Errorf("%s on %s: %v", c.o.Words(), c.rule, err)
			}
		}
		if words(plain) != before || rules.Domain("d").Overridden(plain, list) != plain {
			t.Errorf("%s on %s has changed the rules themselves", c.o.Words(), c.rule)
		}
	}
}

func TestAnOverrideMatchesWhatADescriptorOfItsRuleMayHave(t *testing.T) {
	rules := compile(t, descriptors.Options{}, overriddenRules)
	for rule, match := range map[string]string{
		"d.tenant": "tenant=a", "d.region_eu": "region=eu", "d.file_*.png": "file=a.png", "d.org_acme.org": "org=b org=acme",
	} {
		o := descriptors.Override{ID: "x", Domain: "d", Rule: rule, Match: entries(match), Kind: descriptors.OverrideDeny}
		if _, problems := rules.WithOverrides([]descriptors.Override{o}); problems[0] != nil {
			t.Errorf("%s: %v", match, problems[0])
		}
	}
}

func TestTheNarrowestOverrideHoldsAndThenTheFirst(t *testing.T) {
	rules := compile(t, descriptors.Options{}, overriddenRules)
	on := func(id, match string) descriptors.Override {
		return descriptors.Override{ID: id, Domain: "d", Rule: "d.tenant", Match: entries(match), Kind: descriptors.OverrideUnlimited}
	}
	with, _ := rules.WithOverrides([]descriptors.Override{on("first", ""), on("second", ""), on("acme", "tenant=acme")})
	for text, want := range map[string]string{"tenant=acme": "acme", "tenant=other": "first", "free=a": ""} {
		list := entries(text)
		if got := with.Domain("d").Overridden(with.Domain("d").Match(list), list).Override; got != want {
			t.Errorf("%s is overridden by %q, want %q", text, got, want)
		}
	}
	without, _ := with.WithOverrides(nil)
	if list := entries("tenant=acme"); without.Domain("d").Overridden(without.Domain("d").Match(list), list).Override != "" {
		t.Error("an override stays that is not in the list any more")
	}
}

func TestAnOverrideThatCanNotBeInForceSaysWhy(t *testing.T) {
	rules := compile(t, descriptors.Options{}, overriddenRules)
	for want, o := range map[string]descriptors.Override{
		`no rules for domain "D"; did you mean d?`:                                                   {Domain: "D", Rule: "d.tenant", Kind: descriptors.OverrideDeny},
		`domain d has no rule "d.tenants"; did you mean d.tenant?`:                                   {Domain: "d", Rule: "d.tenants", Kind: descriptors.OverrideDeny},
		`domain d has no rule "d.path/slo"; did you mean d.path/slow?`:                               {Domain: "d", Rule: "d.path/slo", Kind: descriptors.OverrideDeny},
		`rule d.tenant: its descriptors have no entry "user" to match; they have tenant`:             {Domain: "d", Rule: "d.tenant", Match: entries("user=a"), Kind: descriptors.OverrideDeny},
		`rule d.tenant: no descriptor of it has tenant=a,tenant=b`:                                   {Domain: "d", Rule: "d.tenant", Match: entries("tenant=a tenant=b"), Kind: descriptors.OverrideDeny},
		`rule d.region_eu: no descriptor of it has region=us`:                                        {Domain: "d", Rule: "d.region_eu", Match: entries("region=us"), Kind: descriptors.OverrideDeny},
		`rule d.path: it has 2 limits; name one of them: d.path/slow, d.path/long`:                   {Domain: "d", Rule: "d.path", Kind: descriptors.OverrideLimit, Unit: descriptors.Hour},
		`rule d.tenant: there is no kind "" of override; there is shadow, unlimited, deny and limit`: {Domain: "d", Rule: "d.tenant"},
		`rule d.tenant: a period of 175200h0m0s is outside 1 second to 10 years`: {
			Domain: "d", Rule: "d.tenant", Kind: descriptors.OverrideLimit, Requests: 1, Unit: descriptors.Year, Multiplier: 20},
	} {
		with, problems := rules.WithOverrides([]descriptors.Override{o})
		if len(problems) != 1 || problems[0] == nil || problems[0].Error() != want {
			t.Errorf("%v, want %s", problems, want)
		}
		if list := entries("tenant=a"); with.Domain("d").Overridden(with.Domain("d").Match(list), list).Override != "" {
			t.Errorf("%s, and yet it is in force", want)
		}
	}
}

// TestAnOverriddenLimitKeepsItsCount as long as it keeps its period.
func TestAnOverriddenLimitKeepsItsCount(t *testing.T) {
	rules := compile(t, descriptors.Options{}, overriddenRules)
	name := func(rs *descriptors.Ruleset) string {
		list := entries("tenant=a")
		r := rs.Domain("d").Overridden(rs.Domain("d").Match(list), list)
		return string(descriptors.Counter{Domain: "d", Entries: list, Rule: r}.AppendName(nil, &limiter.Limit{
			Algorithm: r.Limits[0].Algorithm, Period: r.Limits[0].Period}))
	}
	o := descriptors.Override{Domain: "d", Rule: "d.tenant", Kind: descriptors.OverrideLimit, Requests: 9, Unit: descriptors.Minute}
	same, _ := rules.WithOverrides([]descriptors.Override{o})
	o.Unit = descriptors.Second
	other, _ := rules.WithOverrides([]descriptors.Override{o})
	if name(same) != name(rules) || name(other) == name(rules) {
		t.Errorf("the counters are %s, %s and %s", name(rules), name(same), name(other))
	}
}
