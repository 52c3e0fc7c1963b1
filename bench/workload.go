package main

import (
	"fmt"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"
)

// Workload is a scenario ready to be sent: its requests are encoded before the clock starts, so that the load spends
// its own time on the wire only. It is not changed once made; any number of callers may share it.
type Workload struct {
	Scenario Scenario
	Domain   string
	Requests [][]byte
	Statuses int // that an answer must have: one a descriptor
}

// newWorkload encodes the requests of the named scenario.
func newWorkload(name, domain string) (*Workload, error) {
	scenario, err := scenarioNamed(name)
	if err != nil {
		return nil, err
	}
	workload := &Workload{Scenario: scenario, Domain: domain, Requests: make([][]byte, scenario.Distinct)}
	for n := range workload.Requests {
		request := &ratelimit.RateLimitRequest{Domain: domain, Descriptors: scenario.Descriptors(n)}
		encoded, err := proto.Marshal(request)
		if err != nil {
			return nil, fmt.Errorf("encode request %d of %s: %w", n, name, err)
		}
		workload.Requests[n] = encoded
		workload.Statuses = len(request.Descriptors)
	}
	return workload, nil
}
