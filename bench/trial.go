package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// errNoTime is why a run without errors may have no decision either.
var errNoTime = errors.New("nothing fell due in so short a time")

// Pressure says how hard, and in what manner, a server is pressed. Its fields are flags.
type Pressure struct {
	Callers     int           `help:"Most requests in flight." default:"64"`
	Connections int           `help:"Connections that the callers share." default:"2"`
	Warmup      time.Duration `help:"Load before the measured part." default:"1s"`
	Rate        float64       `help:"Open loop: so many requests fall due a second, and latency counts from when a request was due, so that a slow server cannot hide how long the next ones wait. 0 is a closed loop: each caller asks as soon as it has its answer."`
	Arrivals    string        `help:"How an open loop's requests fall due: poisson or steady." enum:"poisson,steady" default:"poisson"`
	Timeout     time.Duration `help:"A request's deadline, from when it was due." default:"1s"`
}

// Validate refuses what cannot run.
func (p Pressure) Validate() error {
	if p.Callers < 1 || p.Connections < 1 || p.Timeout <= 0 || p.Warmup < 0 || p.Rate < 0 {
		return errors.New("callers, connections and timeout must be above 0, warmup and rate not below it")
	}
	return nil
}

// arrivals starts to give the requests that fall due for so long from now.
func (p Pressure) arrivals(ctx context.Context, long time.Duration) arrivals {
	switch {
	case p.Rate == 0:
		return closedLoop(ctx, long)
	case p.Arrivals == "steady":
		return pace{steadyGap(p.Rate), pauseExactly}.openLoop(ctx, long)
	default:
		return pace{poissonGap(p.Rate), pauseExactly}.openLoop(ctx, long)
	}
}

// Trial is one measurement: a workload, a server, and the processes that work for it.
type Trial struct {
	Target    string
	Workload  *Workload
	Pressure  Pressure
	Duration  time.Duration
	Processes []Process
	// Open makes the calls' way to the target; nil is gRPC.
	Open func(target string, connections int) (transport, error)
}

// Run measures. It fails if the target is not on a loopback address, a process is gone or nothing was answered; requests
// that failed among others that did not are in the result.
func (t Trial) Run(ctx context.Context) (*Result, error) {
	if err := checkLoopback(t.Target); err != nil {
		return nil, err
	}
	connect := t.Open
	if connect == nil {
		connect = dialGRPC
	}
	open, err := connect(t.Target, t.Pressure.Connections)
	if err != nil {
		return nil, err
	}
	defer open.close()
	if err := t.greet(ctx, open); err != nil {
		return nil, err
	}
	crew := callers{t.Pressure.Callers, t.Pressure.Timeout, t.Workload, open.call}
	crew.run(ctx, t.Pressure.arrivals(ctx, t.Pressure.Warmup))
	return t.measure(ctx, crew)
}

// greet waits until every connection has had an answer, or says why one has not.
func (t Trial) greet(ctx context.Context, open transport) error {
	for i := range t.Pressure.Connections {
		err := persist(ctx, func(ctx context.Context) error {
			return open.call(ctx, i, &t.Workload.Requests[0], new(answer))
		})
		if err != nil {
			return fmt.Errorf("no answer from %s: %w", t.Target, err)
		}
	}
	return nil
}

// measure is the part of a run that counts.
func (t Trial) measure(ctx context.Context, crew callers) (*Result, error) {
	clocks := append([]Process{{Name: "load", PID: os.Getpid()}}, t.Processes...)
	before, err := cpuTimes(clocks)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	seen := crew.run(ctx, t.Pressure.arrivals(ctx, t.Duration))
	elapsed := max(t.Duration, time.Since(start)) // an open loop's last request may be long before the end
	after, err := cpuTimes(clocks)
	if err := cmp.Or(ctx.Err(), err); err != nil {
		return nil, err
	}
	if seen.decisions == 0 {
		return nil, fmt.Errorf("%s answered nothing: %w", t.Target, cmp.Or(seen.firstError, errNoTime))
	}
	result := newResult(t.Workload.Scenario.Name, seen, elapsed)
	result.LoadCPU = result.perDecision(after[0] - before[0])
	for i, process := range t.Processes {
		result.addCPU(process, after[i+1]-before[i+1])
	}
	return result, nil
}
