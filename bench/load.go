package main

import (
	"context"
	"io"
	"time"
)

// Load is the subcommand that puts load on one server.
type Load struct {
	Target   string        `help:"host:port of the service; loopback only." required:""`
	Scenario string        `help:"What is sent: one of ${scenarios}, or of ${shapes}. rules=N needs rules of its own." default:"hot"`
	Domain   string        `help:"Domain of the requests." default:"bench"`
	Duration time.Duration `help:"Length of the measured part." default:"5s"`
	Pressure
	PID  []Process `help:"A process whose CPU time is counted, as name=pid. Repeatable." name:"pid" sep:"none"`
	JSON bool      `help:"Print JSON." name:"json"`
}

// Validate refuses a command line before anything is sent.
func (l *Load) Validate() error {
	if err := checkLoopback(l.Target); err != nil {
		return err
	}
	return l.Pressure.Validate()
}

// Run measures once and prints what was found.
func (l *Load) Run(ctx context.Context, out io.Writer) error {
	workload, err := newWorkload(l.Scenario, l.Domain)
	if err != nil {
		return err
	}
	if err := workload.fillAt(ctx, l.Target); err != nil {
		return err
	}
	trial := Trial{Target: l.Target, Workload: workload, Pressure: l.Pressure, Duration: l.Duration, Processes: l.PID}
	result, err := trial.Run(ctx)
	if err != nil {
		return err
	}
	if l.JSON {
		return writeJSON(out, result)
	}
	return result.write(out)
}
