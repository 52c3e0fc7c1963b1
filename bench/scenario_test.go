package main

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"testing"

	extension "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	"gopkg.in/yaml.v3"
)

// rule is a node of a rules file.
type rule struct {
	Key       string
	Value     string
	RateLimit *struct {
		Unit            string
		RequestsPerUnit uint32 `yaml:"requests_per_unit"`
	} `yaml:"rate_limit"`
	Descriptors []rule
}

// file is the whole of it.
type file struct {
	Domain      string
	Descriptors []rule
}

func parseRules(t *testing.T) file {
	t.Helper()
	decoder := yaml.NewDecoder(bytes.NewReader(rulesFile))
	decoder.KnownFields(true)
	var rules file
	if err := decoder.Decode(&rules); err != nil {
		t.Fatal(err)
	}
	return rules
}

// limitFor walks the rules along a descriptor. 0 is no limit.
func limitFor(rules []rule, descriptor *extension.RateLimitDescriptor) uint32 {
	var found *rule
	for _, entry := range descriptor.Entries {
		i := slices.IndexFunc(rules, func(r rule) bool {
			return r.Key == entry.Key && (r.Value == "" || r.Value == entry.Value)
		})
		if i < 0 {
			return 0
		}
		found, rules = &rules[i], rules[i].Descriptors
	}
	if found.RateLimit == nil {
		return 0
	}
	return found.RateLimit.RequestsPerUnit
}

func TestEveryScenarioMeetsTheLimitsThatItIsAbout(t *testing.T) {
	const unreachable = math.MaxUint32
	limits := map[string][]uint32{
		"nothing-matches": {0},
		"spread":          {unreachable},
		"hot":             {unreachable},
		"hot-over":        {10},
		"nested":          {unreachable, unreachable, unreachable},
	}
	rules := parseRules(t)
	if rules.Domain != benchDomain {
		t.Errorf("domain %q", rules.Domain)
	}
	for _, scenario := range scenarios {
		for _, i := range []int{0, scenario.Distinct / 2, scenario.Distinct - 1} {
			var got []uint32
			for _, descriptor := range scenario.Descriptors(i) {
				got = append(got, limitFor(rules.Descriptors, descriptor))
			}
			if !slices.Equal(got, limits[scenario.Name]) {
				t.Errorf("%s, request %d: limits %d, want %d", scenario.Name, i, got, limits[scenario.Name])
			}
		}
	}
}

func TestEveryRuleBelongsToAScenario(t *testing.T) {
	used := map[string]bool{}
	for _, scenario := range scenarios {
		for _, descriptor := range scenario.Descriptors(0) {
			used[keyPath(descriptor)] = true
		}
	}
	var walk func(above string, rules []rule)
	walk = func(above string, rules []rule) {
		for _, rule := range rules {
			path := above + "/" + rule.Key
			if rule.RateLimit != nil && !used[path] {
				t.Errorf("no scenario meets the rule of %s", path)
			}
			walk(path, rule.Descriptors)
		}
	}
	walk("", parseRules(t).Descriptors)
}

func keyPath(descriptor *extension.RateLimitDescriptor) string {
	path := ""
	for _, entry := range descriptor.Entries {
		path += "/" + entry.Key
	}
	return path
}

func TestRequestsAreAsManyDifferentOnesAsTheScenarioSays(t *testing.T) {
	for _, scenario := range scenarios {
		workload, err := newWorkload(scenario.Name, benchDomain)
		if err != nil {
			t.Fatal(err)
		}
		different := map[string]bool{}
		for _, request := range workload.Requests {
			different[string(request)] = true
		}
		if len(different) != scenario.Distinct || workload.Statuses != len(scenario.Descriptors(0)) {
			t.Errorf("%s: %d different requests, %d statuses", scenario.Name, len(different), workload.Statuses)
		}
	}
}

func TestNestedHasADescriptorOfTwoLevels(t *testing.T) {
	var depths []int
	for _, descriptor := range scenarios[len(scenarios)-1].Descriptors(0) {
		depths = append(depths, len(descriptor.Entries))
	}
	if got := fmt.Sprint(depths); got != "[1 1 2]" {
		t.Errorf("entries a descriptor: %s", got)
	}
}
