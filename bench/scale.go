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
	Turns       int           `help:"How often each server is measured at each number, in turn." default:"3"`
	Duration    time.Duration `help:"Length of the measured part of a trial." default:"1s"`
	Within      time.Duration `help:"What would end later than this after the start is left out." default:"9m30s"`
	Results     Results       `help:"A directory to write scaling.txt and scaling.svg into." type:"path"`
}

// Validate refuses a command line before anything is started.
func (s *Scale) Validate() error {
	if s.Turns < 1 || s.Within <= 0 {
		return errors.New("turns and within must be above 0")
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
		s.Turns, s.Duration, pressure.Callers, pressure.Connections)
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

// point measures at one point of an axis, and adds what it found once it has all of it.
func (s *Scale) point(ctx context.Context, task task, contenders []contender, into *comparison) error {
	all, err := enter(ctx, contenders, task.workload)
	if err != nil {
		return err
	}
	found, err := all.measure(ctx, task, s.Duration, s.Turns)
	if err := errors.Join(err, all.stop()); err != nil {
		return err
	}
	into.merge(found)
	return nil
}
