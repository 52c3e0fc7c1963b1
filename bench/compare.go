package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"slices"
	"time"
)

// Compare is the subcommand that measures servers side by side.
type Compare struct {
	Binary    string        `help:"The envoy-rls program." required:"" type:"existingfile"`
	Rounds    int           `help:"How often each server is started and measured." default:"3"`
	Duration  time.Duration `help:"Length of the measured part of a trial." default:"3s"`
	Scenarios []string      `help:"What is sent: some of ${scenarios}." default:"${scenarios}"`
	Stores    []string      `help:"Stores of envoy-rls to measure: memory, redis." enum:"memory,redis" default:"memory,redis"`
	Extra     []Extra       `help:"Another server to measure, as name=host:port@pid,pid: already running with the rules of rules/bench.yaml, with the processes whose CPU time counts. Loopback only. Repeatable." sep:"none"`
	Pressure
	JSON bool `help:"Print JSON." name:"json"`
}

// Validate refuses a command line before anything is started.
func (c *Compare) Validate() error {
	if c.Rounds < 1 {
		return errors.New("rounds must be above 0")
	}
	taken := []string{noopName, "memory", "redis"}
	for _, extra := range c.Extra {
		if slices.Contains(taken, extra.Name) {
			return fmt.Errorf("server name %q is taken", extra.Name)
		}
		taken = append(taken, extra.Name)
	}
	return c.Pressure.Validate()
}

// Run measures round after round and prints the medians. What it started is gone when it returns.
func (c *Compare) Run(ctx context.Context, out io.Writer) error {
	workloads := make([]*Workload, len(c.Scenarios))
	for i, scenario := range c.Scenarios {
		workload, err := newWorkload(scenario, benchDomain)
		if err != nil {
			return err
		}
		workloads[i] = workload
	}
	rig, err := newRig(c.Binary)
	if rig != nil {
		defer os.RemoveAll(rig.dir)
	}
	if err != nil {
		return err
	}
	comparison, err := c.rounds(ctx, c.contenders(rig), workloads)
	if err != nil {
		return cmp.Or(ctx.Err(), err)
	}
	if c.JSON {
		return writeJSON(out, comparison.rows())
	}
	return writeRows(out, comparison.rows())
}

// contenders gives the no-op and what is to be compared with it.
func (c *Compare) contenders(rig *rig) []contender {
	all := []contender{{noopName, rig.noop}}
	if slices.Contains(c.Stores, "memory") {
		all = append(all, contender{"memory", rig.memory})
	}
	if slices.Contains(c.Stores, "redis") {
		all = append(all, contender{"redis", rig.redis})
	}
	for i := range c.Extra {
		all = append(all, contender{c.Extra[i].Name, c.Extra[i].start})
	}
	return all
}

// rounds measures every contender once a round, one after the other: at no time do two of them run.
func (c *Compare) rounds(ctx context.Context, contenders []contender, workloads []*Workload) (*comparison, error) {
	measured := newComparison()
	for round := range c.Rounds {
		for _, contender := range contenders {
			results, err := c.measure(ctx, contender, workloads)
			if err != nil {
				return nil, fmt.Errorf("round %d, %s: %w", round+1, contender.name, err)
			}
			measured.add(contender.name, results)
		}
	}
	return measured, nil
}

// measure starts a server, sends it every workload, and stops it.
func (c *Compare) measure(ctx context.Context, contender contender, workloads []*Workload) (_ []*Result, err error) {
	running, err := contender.start(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, running.stop()) }()
	var results []*Result
	for _, workload := range workloads {
		trial := Trial{running.address, workload, c.Pressure, c.Duration, running.processes}
		result, err := trial.Run(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", workload.Scenario, err)
		}
		report(contender.name, result)
		results = append(results, result)
	}
	return results, nil
}

// report lets people follow a long run.
func report(server string, result *Result) {
	log := slog.With("server", server, "scenario", result.Scenario)
	log.Info("measured", "decisions/s", math.Round(result.PerSecond), "CPU µs", math.Round(result.CPUSum))
	if result.Errors > 0 {
		log.Warn("requests failed", "errors", result.Errors, "first", result.FirstError)
	}
}
