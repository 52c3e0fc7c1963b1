package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// shortWarmup is the load before what is measured of a server that has been measured before.
const shortWarmup = 100 * time.Millisecond

// entrant is a contender that runs.
type entrant struct {
	name string
	*server
}

// entrants run side by side, so that they can be measured seconds apart: on a machine that others use, too, only that is
// comparable. One that is not asked costs next to nothing.
type entrants []entrant

// enter starts contenders and makes their counters. If one can't, nothing of them is left.
func enter(ctx context.Context, contenders []contender, workload *Workload) (entrants, error) {
	var all entrants
	for _, contender := range contenders {
		running, err := contender.start(ctx, workload)
		if err == nil {
			all = append(all, entrant{contender.name, running})
			err = running.fill(ctx)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", contender.name, err), all.stop())
		}
	}
	return all, nil
}

func (e entrants) stop() error {
	var errs []error
	for _, entrant := range e {
		errs = append(errs, entrant.stop())
	}
	return errors.Join(errs...)
}

// measure sends the task to all of them, so many turns.
func (e entrants) measure(ctx context.Context, task task, long time.Duration, turns int) (*comparison, error) {
	found := newComparison()
	pressure := task.pressure
	for turn := range turns {
		for _, entrant := range rotate(e, turn) {
			result, err := entrant.trial(pressure, long).Run(ctx)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", entrant.name, err)
			}
			result.Scenario = task.name
			follow(entrant.name, result)
			found.add(entrant.name, result)
		}
		pressure.Warmup = min(pressure.Warmup, shortWarmup)
	}
	return found, nil
}

// rotate lets another one begin in each turn, so that nobody has the best place in all of them.
func rotate[T any](all []T, turn int) []T {
	first := turn % len(all)
	return slices.Concat(all[first:], all[:first])
}
