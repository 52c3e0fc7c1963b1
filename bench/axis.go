package main

import (
	"fmt"
	"time"
)

// scalePressure is that of every axis but the one along which it varies.
func scalePressure() Pressure {
	return Pressure{Callers: 64, Connections: 2, Warmup: 300 * time.Millisecond, Timeout: 10 * time.Second}
}

// axis is one thing of which there is more and more, while all else stays.
type axis struct {
	name   string
	title  string
	points []int
	task   func(name string, n int) (task, error)
}

// at names a point, and is the scenario of its results.
func (a axis) at(n int) string { return fmt.Sprintf("%s=%d", a.name, n) }

// shapeTask has a shape's scenario, which has the point's name.
func shapeTask(name string, _ int) (task, error) {
	workload, err := newWorkload(name, benchDomain)
	return task{name, workload, scalePressure()}, err
}

// callersTask has so many callers, each of which asks for any of many counters.
func callersTask(name string, n int) (task, error) {
	workload, err := newWorkload(steadyScenario, benchDomain)
	pressure := scalePressure()
	pressure.Callers = n
	return task{name, workload, pressure}, err
}
