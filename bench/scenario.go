package main

import (
	_ "embed"
	"fmt"
	"slices"

	extension "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"
)

// benchDomain is the domain of rulesFile.
const benchDomain = "bench"

// rulesFile holds the rules that the scenarios meet.
//
//go:embed rules/bench.yaml
var rulesFile []byte

// Scenario is a kind of traffic: Distinct different requests, of which callers send random ones.
type Scenario struct {
	Name     string
	Distinct int
	// Descriptors makes those of request i, 0 ≤ i < Distinct. Their number is the same for every i.
	Descriptors func(i int) []*extension.RateLimitDescriptor
}

// scenarios is the table of all kinds of traffic, in the order in which compare prints them.
var scenarios = []Scenario{
	{"nothing-matches", 1, func(int) []*extension.RateLimitDescriptor {
		return descriptors(descriptor("stranger", "anybody"))
	}},
	{"spread", 100_000, func(i int) []*extension.RateLimitDescriptor {
		return descriptors(descriptor("client", fmt.Sprintf("client-%05d", i)))
	}},
	{"hot", 1, func(int) []*extension.RateLimitDescriptor {
		return descriptors(descriptor("client", "hot"))
	}},
	{"hot-over", 1, func(int) []*extension.RateLimitDescriptor {
		return descriptors(descriptor("greedy", "hot"))
	}},
	{"nested", 100_000, func(i int) []*extension.RateLimitDescriptor {
		return descriptors(
			descriptor("address", fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255)),
			descriptor("path", fmt.Sprintf("/v1/path-%03d", i%1000)),
			descriptor("tenant", fmt.Sprintf("tenant-%02d", i%100), "user", fmt.Sprintf("user-%05d", i)),
		)
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

// Workload is a scenario ready to be sent: its requests are encoded before the clock starts, so that the load spends
// its own time on the wire only. It is not changed once made; any number of callers may share it.
type Workload struct {
	Scenario string
	Requests [][]byte
	Statuses int // that an answer must have: one a descriptor
}

// newWorkload encodes the requests of the named scenario.
func newWorkload(scenario, domain string) (*Workload, error) {
	i := slices.IndexFunc(scenarios, func(s Scenario) bool { return s.Name == scenario })
	if i < 0 {
		return nil, fmt.Errorf("scenario %q is none of %q", scenario, scenarioNames())
	}
	workload := &Workload{Scenario: scenario, Requests: make([][]byte, scenarios[i].Distinct)}
	for n := range workload.Requests {
		request := &ratelimit.RateLimitRequest{Domain: domain, Descriptors: scenarios[i].Descriptors(n)}
		encoded, err := proto.Marshal(request)
		if err != nil {
			return nil, fmt.Errorf("encode request %d of %s: %w", n, scenario, err)
		}
		workload.Requests[n] = encoded
		workload.Statuses = len(request.Descriptors)
	}
	return workload, nil
}
