package main

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"

	extension "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
)

// benchDomain is the domain of rulesFile.
const benchDomain = "bench"

// rulesFile holds the rules that the scenarios meet, unless they bring their own.
//
//go:embed rules/bench.yaml
var rulesFile []byte

// Scenario is a kind of traffic: Distinct different requests, of which callers send random ones.
type Scenario struct {
	Name     string
	Distinct int
	// Descriptors makes those of request i, 0 ≤ i < Distinct. Their number is the same for every i.
	Descriptors func(i int) []*extension.RateLimitDescriptor
	// Counters is how many counters exist before the clock starts: those of Counter. 0 leaves them to chance.
	Counters int
	Counter  func(i int) *extension.RateLimitDescriptor
	// Rules is the rule file that a server must have for it; nil is rulesFile.
	Rules []byte
}

// scenarios is the table of traffic that compare sends, in the order in which it prints them.
var scenarios = []Scenario{
	{Name: "nothing-matches", Distinct: 1, Descriptors: func(int) []*extension.RateLimitDescriptor {
		return descriptors(descriptor("stranger", "anybody"))
	}},
	{Name: "spread", Distinct: 100_000, Descriptors: func(i int) []*extension.RateLimitDescriptor {
		return descriptors(descriptor("client", fmt.Sprintf("client-%05d", i)))
	}},
	{Name: "hot", Distinct: 1, Descriptors: func(int) []*extension.RateLimitDescriptor {
		return descriptors(descriptor("client", "hot"))
	}},
	{Name: "hot-over", Distinct: 1, Descriptors: func(int) []*extension.RateLimitDescriptor {
		return descriptors(descriptor("greedy", "hot"))
	}},
	{Name: "nested", Distinct: 100_000, Descriptors: func(i int) []*extension.RateLimitDescriptor {
		return descriptors(
			descriptor("address", fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255)),
			descriptor("path", fmt.Sprintf("/v1/path-%03d", i%1000)),
			descriptor("tenant", fmt.Sprintf("tenant-%02d", i%100), "user", fmt.Sprintf("user-%05d", i)),
		)
	}},
	{Name: "sliding", Distinct: 100_000, Descriptors: func(i int) []*extension.RateLimitDescriptor {
		return descriptors(descriptor("slider", fmt.Sprintf("client-%05d", i)))
	}},
	{Name: "bucket", Distinct: 100_000, Descriptors: func(i int) []*extension.RateLimitDescriptor {
		return descriptors(descriptor("drop", fmt.Sprintf("client-%05d", i)))
	}},
}

func descriptors(all ...*extension.RateLimitDescriptor) []*extension.RateLimitDescriptor { return all }

// descriptor makes one from keys and values in turn.
func descriptor(pairs ...string) *extension.RateLimitDescriptor {
	made := new(extension.RateLimitDescriptor)
	for pair := range slices.Chunk(pairs, 2) {
		made.Entries = append(made.Entries, &extension.RateLimitDescriptor_Entry{Key: pair[0], Value: pair[1]})
	}
	return made
}

func scenarioNames() []string {
	names := make([]string, len(scenarios))
	for i, scenario := range scenarios {
		names[i] = scenario.Name
	}
	return names
}

// scenarioNamed finds a scenario of the table, or makes one of a shape from its name and number, as in rules=1000.
func scenarioNamed(name string) (Scenario, error) {
	if i := slices.IndexFunc(scenarios, func(s Scenario) bool { return s.Name == name }); i >= 0 {
		return scenarios[i], nil
	}
	kind, number, _ := strings.Cut(name, "=")
	shape, found := shapes[kind]
	n, err := strconv.Atoi(number)
	if !found || err != nil || n < 1 || n > shape.most {
		return Scenario{}, fmt.Errorf("scenario %q is none of %q and no %s", name, scenarioNames(), shapeNames())
	}
	made := shape.scenario(n)
	made.Name = name
	return made, nil
}
