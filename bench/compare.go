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
	Also      []Binary      `help:"Another build of envoy-rls to measure beside it, as name=path. Repeatable." sep:"none"`
	Rounds    int           `help:"How often each server is started in each scenario." default:"5"`
	Turns     int           `help:"How often each is measured once started, in turn." default:"3"`
	Within    time.Duration `help:"No round begins that would end later than this after the start; the first always does. 0 sets no bound." default:"9m30s"`
	Duration  time.Duration `help:"Length of the measured part of a trial." default:"800ms"`
	Scenarios []string      `help:"What is sent: some of ${scenarios}, or of ${shapes}." default:"${scenarios}"`
	Stores    []string      `help:"Stores of envoy-rls to measure: memory, redis." enum:"memory,redis" default:"memory,redis"`
	Steady    float64       `help:"Measure latency as well, while so many requests of the scenario spread fall due a second, evenly. 0: don't." default:"3000"`
	Heap      bool          `help:"Measure the memory of a million counters as well." negatable:"" default:"true"`
	Extra     []Extra       `help:"Another server to measure, as name=host:port@pid,pid: already running with the rules of rules/bench.yaml, with the processes whose CPU time counts. Loopback only. Repeatable." sep:"none"`
	Results   Results       `help:"A directory to write latest.txt and latest.svg into." type:"path"`
	Pressure
	JSON bool `help:"Print JSON." name:"json"`
}

// Validate refuses a command line before anything is started.
func (c *Compare) Validate() error {
	if c.Rounds < 1 || c.Turns < 1 || c.Steady < 0 {
		return errors.New("rounds and turns must be above 0, steady not below it")
	}
	taken := []string{noopName, memoryName, redisStore, baselineName}
	var added []string
	for _, also := range c.Also {
		added = append(added, also.Name)
		if _, err := os.Stat(also.Path); err != nil {
			return fmt.Errorf("build %s: %w", also.Name, err)
		}
	}
	for _, extra := range c.Extra {
		added = append(added, extra.Name)
	}
	for _, name := range added {
		if slices.Contains(taken, name) {
			return fmt.Errorf("server name %q is taken", name)
		}
		taken = append(taken, name)
	}
	return c.Pressure.Validate()
}

// Run measures round after round and prints the medians. What it started is gone when it returns.
func (c *Compare) Run(ctx context.Context, out io.Writer) error {
	tasks, err := c.tasks()
	if err != nil {
		return err
	}
	rig, err := newRig()
	if err != nil {
		return err
	}
	defer os.RemoveAll(rig.dir)
	comparison, err := c.measure(ctx, rig, tasks)
	if err != nil {
		return cmp.Or(ctx.Err(), err)
	}
	found := report{Rows: comparison.rows(), Verdicts: comparison.verdicts(c.builds())}
	if err := c.save(ctx, found, comparison.turns()); err != nil {
		return err
	}
	if c.JSON {
		return writeJSON(out, found)
	}
	return found.write(out)
}

// save leaves the report in the directory for results, with what it depends on.
func (c *Compare) save(ctx context.Context, found report, turns int) error {
	how := fmt.Sprintf("Medians of %d × %v. %d callers on %d connections. Ratios are to the no-op in the same turn.", turns, c.Duration, c.Callers, c.Connections)
	text := func(out io.Writer) error {
		if err := heading(ctx, out, c.Binary, how); err != nil {
			return err
		}
		return found.write(out)
	}
	picture := func() ([]byte, error) { return found.barsPicture(c.Scenarios, how) }
	return c.Results.save("latest", text, picture)
}

// task is a row of the comparison: what is sent, and how hard.
type task struct {
	name     string
	workload *Workload
	pressure Pressure
}

// isNotFor is true for a contender that can't be sent the task.
func (t task) isNotFor(contender contender) bool {
	return contender.scenarios != nil && !slices.Contains(contender.scenarios, t.name)
}

// tasks are the scenarios under the common pressure, then the open loop.
func (c *Compare) tasks() ([]task, error) {
	var tasks []task
	for _, name := range c.Scenarios {
		workload, err := newWorkload(name, benchDomain)
		if err != nil {
			return nil, err
		}
		tasks = append(tasks, task{name, workload, c.Pressure})
	}
	if c.Steady == 0 {
		return tasks, nil
	}
	workload, err := newWorkload(steadyScenario, benchDomain)
	if err != nil {
		return nil, err
	}
	steady := c.Pressure
	steady.Rate, steady.Arrivals = c.Steady, "steady"
	return append(tasks, task{steadyName(c.Steady), workload, steady}), nil
}

// steadyScenario is what the open loop sends.
const steadyScenario = "spread"

// steadyName is what the open loop's task is called.
func steadyName(rate float64) string { return fmt.Sprintf("%s, %.0f/s", steadyScenario, rate) }

// builds are those of the service, the first one first.
func (c *Compare) builds() []Binary {
	return append([]Binary{{Path: c.Binary}}, c.Also...)
}

// contenders gives the no-op and what is to be compared with it.
func (c *Compare) contenders(rig *rig) []contender {
	all := []contender{{name: noopName, start: rig.noop}}
	for _, build := range c.builds() {
		all = append(all, build.contenders(rig, c.Stores)...)
	}
	if slices.Contains(c.Stores, redisStore) {
		all = append(all, contender{baselineName, []string{"spread", "hot"}, rig.baseline})
	}
	for i := range c.Extra {
		all = append(all, contender{name: c.Extra[i].Name, start: c.Extra[i].start})
	}
	return all
}

// measure goes round after round, as long as there is time.
func (c *Compare) measure(ctx context.Context, rig *rig, tasks []task) (*comparison, error) {
	began := time.Now()
	measured := newComparison()
	if err := c.measureHeap(ctx, rig, measured); err != nil {
		return nil, err
	}
	var longest time.Duration
	for round := range c.Rounds {
		start := time.Now()
		if c.Within > 0 && round > 0 && start.Add(longest).Sub(began) > c.Within {
			slog.Warn("no time for more rounds", "rounds", round, "within", c.Within)
			break
		}
		if err := c.round(ctx, c.contenders(rig), tasks, measured); err != nil {
			return nil, fmt.Errorf("round %d, %w", round+1, err)
		}
		longest = max(longest, time.Since(start))
	}
	return measured, nil
}

// round measures each task on all contenders that take it, freshly started.
func (c *Compare) round(ctx context.Context, contenders []contender, tasks []task, into *comparison) error {
	for _, task := range tasks {
		all, err := enter(ctx, slices.DeleteFunc(slices.Clone(contenders), task.isNotFor), task.workload)
		if err != nil {
			return fmt.Errorf("%s, %w", task.name, err)
		}
		found, err := all.measure(ctx, task, c.Duration, c.Turns)
		if err := errors.Join(err, all.stop()); err != nil {
			return fmt.Errorf("%s, %w", task.name, err)
		}
		into.merge(found)
	}
	return nil
}

// follow lets people follow a long run.
func follow(server string, result *Result) {
	log := slog.With("server", server, "scenario", result.Scenario)
	log.Info("measured", "decisions/s", math.Round(result.PerSecond), "CPU µs", math.Round(result.CPUSum*10)/10)
	if result.Errors > 0 {
		log.Warn("requests failed", "errors", result.Errors, "first", result.FirstError)
	}
}
