package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// baselineName is the contender that what Redis spends is a ratio to.
	baselineName = "INCRBY+EXPIRE"
	// baselinePeriod is that of the rules' limits.
	baselinePeriod = time.Hour
)

// pipelines count in Redis as a service does that has a counter incremented and its expiry set for each request: one
// pipeline of INCRBY and EXPIRE, over go-redis as it comes. Whoever calls is the service, so there is no gRPC.
type pipelines struct{ client *redis.Client }

// openPipelines takes go-redis's own size of pool for the connections.
func openPipelines(target string, _ int) (transport, error) {
	return pipelines{redis.NewClient(&redis.Options{Addr: target})}, nil
}

// call counts one hit of the counter that the request names.
func (p pipelines) call(ctx context.Context, _ int, request *[]byte, into *answer) error {
	name := string(*request)
	pipeline := p.client.Pipeline()
	pipeline.IncrBy(ctx, name, 1)
	pipeline.Expire(ctx, name, baselinePeriod)
	_, err := pipeline.Exec(ctx)
	*into = answer{statuses: 1}
	return err
}

func (p pipelines) close() error { return p.client.Close() }

// baselineWorkload is a scenario of one descriptor a request, as the counters' names that such a service makes: domain,
// keys and values, and when the window began.
func baselineWorkload(of *Workload) *Workload {
	window := time.Now().Truncate(baselinePeriod).Unix()
	names := &Workload{Scenario: of.Scenario, Domain: of.Domain, Statuses: 1}
	for i := range of.Scenario.Distinct {
		name := new(strings.Builder)
		name.WriteString(of.Domain)
		for _, entry := range of.Scenario.Descriptors(i)[0].Entries {
			fmt.Fprintf(name, "_%s_%s", entry.Key, entry.Value)
		}
		fmt.Fprintf(name, "_%d", window)
		names.Requests = append(names.Requests, []byte(name.String()))
	}
	return names
}

// baseline starts a Redis of its own; the load is the service.
func (r *rig) baseline(ctx context.Context, workload *Workload) (*server, error) {
	port, redis, err := redisServer()
	if err != nil {
		return nil, err
	}
	running, err := r.run(ctx, redis)
	if err != nil {
		return nil, err
	}
	running.address, running.workload, running.open = loopback(port), baselineWorkload(workload), openPipelines
	return running, nil
}
