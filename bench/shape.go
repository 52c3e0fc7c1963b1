package main

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	extension "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
)

// shape is a family of scenarios, one for each number up to most.
type shape struct {
	most     int
	scenario func(n int) Scenario
}

// shapes is the table of families, by name. Each varies one thing and holds the others.
var shapes = map[string]shape{
	"rules":       {1_000_000, withRules},
	"counters":    {10_000_000, withCounters},
	"descriptors": {64, withDescriptors},
}

// mostSent bounds the different requests of a scenario with counters, evenly spaced: far more counters than a processor
// caches, and few enough to be encoded beforehand.
const mostSent = 500_000

// withRules has n rules, each for one value and each met, so that there are as many counters.
func withRules(n int) Scenario {
	route := func(i int) string { return fmt.Sprintf("/v1/route-%06d", i) }
	rules := new(bytes.Buffer)
	fmt.Fprintf(rules, "domain: %s\ndescriptors:\n", benchDomain)
	for i := range n {
		fmt.Fprintf(rules, "- {key: route, value: %s, rate_limit: {unit: hour, requests_per_unit: 4294967295}}\n", route(i))
	}
	return Scenario{Distinct: n, Rules: rules.Bytes(), Descriptors: func(i int) []*extension.RateLimitDescriptor {
		return descriptors(descriptor("route", route(i)))
	}}
}

// withCounters has n counters of one rule that exist before the clock starts. The server calls a counter by 56 bytes.
func withCounters(n int) Scenario {
	counter := func(i int) *extension.RateLimitDescriptor {
		return descriptor("account", fmt.Sprintf("account-%011d", i))
	}
	sent := min(n, mostSent)
	return Scenario{Distinct: sent, Counters: n, Counter: counter, Descriptors: func(i int) []*extension.RateLimitDescriptor {
		return descriptors(counter(i * (n / sent)))
	}}
}

// withDescriptors has n descriptors a request, each with a counter of its own: about 100,000 counters for any n.
func withDescriptors(n int) Scenario {
	return Scenario{Distinct: 100_000 / n, Descriptors: func(i int) []*extension.RateLimitDescriptor {
		all := make([]*extension.RateLimitDescriptor, n)
		for j := range all {
			all[j] = descriptor("client", fmt.Sprintf("client-%05d", i*n+j))
		}
		return all
	}}
}

// shapeNames gives them as people write them.
func shapeNames() string {
	names := slices.Sorted(maps.Keys(shapes))
	return strings.Join(names, "=N, ") + "=N"
}
