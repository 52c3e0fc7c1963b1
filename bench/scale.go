package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"time"
)

// Scale is the subcommand that measures how the cost of a decision grows with what there is.
type Scale struct {
	Binary      string        `help:"The envoy-rls program." required:"" type:"existingfile"`
	Rules       []int         `help:"Numbers of rules." default:"10,100,1000,10000,100000"`
	Descriptors []int         `help:"Numbers of descriptors in a request." default:"1,2,4,8,16"`
	Callers     []int         `help:"Numbers of callers." default:"1,4,16,64,256,512"`
	Counters    []int         `help:"Numbers of counters." default:"1000,10000,100000,1000000,5000000"`
	Stores      []string      `help:"Stores of envoy-rls to measure: memory, redis." enum:"memory,redis" default:"memory,redis"`
	Rounds      int           `help:"How often each server is measured at each number." default:"3"`
	Duration    time.Duration `help:"Length of the measured part of a trial." default:"1s"`
	Within      time.Duration `help:"What would end later than this after the start is left out." default:"9m30s"`
	Results     Results       `help:"A directory to write scaling.txt and scaling.svg into." type:"path"`
}

// Validate refuses a command line before anything is started.
func (s *Scale) Validate() error {
	if s.Rounds < 1 || s.Within <= 0 {
		return errors.New("rounds and within must be above 0")
	}
	for _, axis := range s.axes() {
		if !slices.IsSorted(axis.points) {
			return fmt.Errorf("numbers of %s must grow", axis.name)
		}
		for _, n := range axis.points {
			if n < 1 {
				return fmt.Errorf("numbers of %s must be above 0", axis.name)
			}
		}
	}
	return nil
}

// axes are what there is more and more of, the longest to measure last.
func (s *Scale) axes() []axis {
	return []axis{
		{"rules", "rules, each met", s.Rules, shapeTask},
		{"descriptors", "descriptors in a request", s.Descriptors, shapeTask},
		{"callers", "callers", s.Callers, callersTask},
		{"counters", "counters", s.Counters, shapeTask},
	}
}

// Run measures and prints. What it started is gone when it returns.
func (s *Scale) Run(ctx context.Context, out io.Writer) error {
	rig, err := newRig()
	if err != nil {
		return err
	}
	defer os.RemoveAll(rig.dir)
	grown, err := s.measure(ctx, rig)
	if err != nil {
		return cmp.Or(ctx.Err(), err)
	}
	pressure := scalePressure()
	how := fmt.Sprintf("Medians of %d × %v. %d callers on %d connections, unless they are what varies. Ratios are to the no-op.",
		s.Rounds, s.Duration, pressure.Callers, pressure.Connections)
	text := func(out io.Writer) error {
		if err := heading(ctx, out, s.Binary, how); err != nil {
			return err
		}
		return grown.write(out)
	}
	if err := s.Results.save("scaling", text, func() ([]byte, error) { return grown.picture(how) }); err != nil {
		return err
	}
	return grown.write(out)
}

// measure goes along each axis, as long as there is time.
func (s *Scale) measure(ctx context.Context, rig *rig) (*growth, error) {
	limited, cancel := context.WithTimeout(ctx, s.Within)
	defer cancel()
	contenders := append([]contender{{name: noopName, start: rig.noop}}, Binary{Path: s.Binary}.contenders(rig, s.Stores)...)
	grown := &growth{axes: s.axes(), measured: newComparison()}
	for _, axis := range grown.axes {
		for _, n := range axis.points {
			task, err := axis.task(axis.at(n), n)
			if err == nil {
				err = s.point(limited, task, contenders, grown.measured)
			}
			if limited.Err() != nil && ctx.Err() == nil {
				slog.Warn("no time for the rest", "from", task.name, "within", s.Within)
				return grown, nil
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", task.name, err)
			}
		}
	}
	return grown, nil
}

// point measures all contenders in turn, round after round, and adds what it found once it has all of it. They run side
// by side, so that each has its counters made once; one that is not asked costs next to nothing.
func (s *Scale) point(ctx context.Context, task task, contenders []contender, into *comparison) (err error) {
	running := make([]*server, len(contenders))
	for i, contender := range contenders {
		if running[i], err = contender.start(ctx, task.workload); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, running[i].stop()) }()
		if err := running[i].fill(ctx); err != nil {
			return err
		}
	}
	found := newComparison()
	for range s.Rounds {
		for i, contender := range contenders {
			result, err := running[i].trial(task.pressure, s.Duration).Run(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", contender.name, err)
			}
			result.Scenario = task.name
			follow(contender.name, result)
			found.add(contender.name, result)
		}
	}
	into.merge(found)
	return nil
}
