package main

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	extension "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"
	"gopkg.in/yaml.v3"
)

// rule is a node of a rules file.
type rule struct {
	Key       string
	Value     string
	MaxValues int `yaml:"max_values"`
	RateLimit *struct {
		Unit            string
		RequestsPerUnit uint32 `yaml:"requests_per_unit"`
		Algorithm       string
		Burst           uint32
	} `yaml:"rate_limit"`
	Descriptors []rule
}

// file is the whole of it.
type file struct {
	Domain      string
	Descriptors []rule
}

func parseRules(t *testing.T, text []byte) file {
	t.Helper()
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	var rules file
	if err := decoder.Decode(&rules); err != nil {
		t.Fatal(err)
	}
	return rules
}

// limitFor walks the rules along a descriptor, and gives the most that passes at once. 0 is no limit.
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
	return max(found.RateLimit.RequestsPerUnit, found.RateLimit.Burst)
}

// everyScenario gives the table's, and one of each shape.
func everyScenario(t *testing.T) []Scenario {
	t.Helper()
	all := slices.Clone(scenarios)
	for _, name := range []string{"rules=20", "counters=3000", "descriptors=3"} {
		made, err := scenarioNamed(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, made)
	}
	return all
}

func TestEveryScenarioMeetsTheLimitsThatItIsAbout(t *testing.T) {
	const unreachable = math.MaxUint32
	limits := map[string][]uint32{
		"nothing-matches": {0},
		"spread":          {unreachable},
		"hot":             {unreachable},
		"hot-over":        {10},
		"nested":          {unreachable, unreachable, unreachable},
		"sliding":         {unreachable},
		"bucket":          {1_000_000},
		"rules=20":        {unreachable},
		"counters=3000":   {unreachable},
		"descriptors=3":   {unreachable, unreachable, unreachable},
	}
	rules := parseRules(t, rulesFile)
	if rules.Domain != benchDomain {
		t.Errorf("domain %q", rules.Domain)
	}
	for _, scenario := range everyScenario(t) {
		rules := rules
		if scenario.Rules != nil {
			rules = parseRules(t, scenario.Rules)
		}
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
	for _, scenario := range everyScenario(t) {
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
	walk("", parseRules(t, rulesFile).Descriptors)
}

func keyPath(descriptor *extension.RateLimitDescriptor) string {
	path := ""
	for _, entry := range descriptor.Entries {
		path += "/" + entry.Key
	}
	return path
}

func TestRequestsAreAsManyDifferentOnesAsTheScenarioSays(t *testing.T) {
	for _, scenario := range everyScenario(t) {
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
	nested, err := scenarioNamed("nested")
	if err != nil {
		t.Fatal(err)
	}
	var depths []int
	for _, descriptor := range nested.Descriptors(0) {
		depths = append(depths, len(descriptor.Entries))
	}
	if got := fmt.Sprint(depths); got != "[1 1 2]" {
		t.Errorf("entries a descriptor: %s", got)
	}
}

func TestAShapeHasAsManyAsItsNumberSays(t *testing.T) {
	rules, err := scenarioNamed("rules=20")
	if err != nil {
		t.Fatal(err)
	}
	if got := len(parseRules(t, rules.Rules).Descriptors); got != 20 {
		t.Errorf("%d rules", got)
	}
	descriptors, err := scenarioNamed("descriptors=16")
	if err != nil {
		t.Fatal(err)
	}
	if got := len(descriptors.Descriptors(7)); got != 16 {
		t.Errorf("%d descriptors", got)
	}
	counters, err := scenarioNamed("counters=5000000")
	if err != nil {
		t.Fatal(err)
	}
	last := counters.Descriptors(counters.Distinct - 1)[0].Entries[0].Value
	if counters.Counters != 5_000_000 || last != "account-00004999990" {
		t.Errorf("%d counters, the last one asked for is %s", counters.Counters, last)
	}
}

func TestAScenarioThatIsNotThereIsAnError(t *testing.T) {
	for _, name := range []string{"", "cold", "rules", "rules=", "rules=x", "rules=0", "rules=-1", "descriptors=65"} {
		if _, err := scenarioNamed(name); err == nil || !strings.Contains(err.Error(), "counters=N") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestEveryCounterOfAScenarioIsMadeOnce(t *testing.T) {
	workload, err := newWorkload("counters=1000", benchDomain)
	if err != nil {
		t.Fatal(err)
	}
	server := &census{seen: map[string]int{}}
	if err := workload.fill(t.Context(), server); err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		if value := workload.Scenario.Counter(i).Entries[0].Value; server.seen[value] != 1 {
			t.Errorf("%s was asked for %d times", value, server.seen[value])
		}
	}
	if len(server.seen) != 1000 {
		t.Errorf("%d counters", len(server.seen))
	}
}

// census is a transport that counts how often each value of a first entry is sent.
type census struct {
	lock sync.Mutex
	seen map[string]int
}

func (c *census) call(_ context.Context, _ int, request *[]byte, into *answer) error {
	var sent ratelimit.RateLimitRequest
	if err := proto.Unmarshal(*request, &sent); err != nil {
		return err
	}
	c.lock.Lock()
	defer c.lock.Unlock()
	for _, descriptor := range sent.Descriptors {
		c.seen[descriptor.Entries[0].Value]++
	}
	*into = answer{statuses: len(sent.Descriptors)}
	return nil
}

func (*census) close() error { return nil }
