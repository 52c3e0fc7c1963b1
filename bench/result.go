package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// Result is what a trial found. Times are in microseconds.
type Result struct {
	Scenario   string  `json:"scenario"`
	Seconds    float64 `json:"seconds"`
	Decisions  uint64  `json:"decisions"` // requests answered
	PerSecond  float64 `json:"decisions_per_second"`
	OverLimit  float64 `json:"over_limit_share"`
	Errors     uint64  `json:"errors"`
	FirstError string  `json:"first_error,omitempty"`
	P50        float64 `json:"p50_us"`
	P90        float64 `json:"p90_us"`
	P99        float64 `json:"p99_us"`
	Max        float64 `json:"max_us"`
	// LateP99 is how long after it was due the load sent a request: the part of the latency for which the load, or its
	// lack of free callers, answers.
	LateP99 float64 `json:"late_p99_us"`
	CPU     []Usage `json:"cpu,omitempty"`
	CPUSum  float64 `json:"cpu_us_per_decision"`
	// LoadCPU is what the load itself used; it is in no sum.
	LoadCPU float64 `json:"load_cpu_us_per_decision"`
}

// Usage is what a decision cost one process.
type Usage struct {
	Name   string  `json:"name"`
	Micros float64 `json:"us_per_decision"`
}

func newResult(scenario string, seen *tally, elapsed time.Duration) *Result {
	result := &Result{
		Scenario:  scenario,
		Seconds:   elapsed.Seconds(),
		Decisions: seen.decisions,
		PerSecond: float64(seen.decisions) / elapsed.Seconds(),
		OverLimit: float64(seen.over) / float64(seen.decisions),
		Errors:    seen.errors,
		P50:       micros(seen.latency.Percentile(50)),
		P90:       micros(seen.latency.Percentile(90)),
		P99:       micros(seen.latency.Percentile(99)),
		Max:       micros(seen.latency.Percentile(100)),
		LateP99:   micros(seen.late.Percentile(99)),
	}
	if seen.firstError != nil {
		result.FirstError = seen.firstError.Error()
	}
	return result
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func (r *Result) perDecision(used time.Duration) float64 { return micros(used) / float64(r.Decisions) }

func (r *Result) addCPU(process Process, used time.Duration) {
	usage := Usage{process.Name, r.perDecision(used)}
	r.CPU = append(r.CPU, usage)
	r.CPUSum += usage.Micros
}

// cpuOf is what a decision cost the named process, 0 if it was not counted.
func (r *Result) cpuOf(process string) float64 {
	for _, usage := range r.CPU {
		if usage.Name == process {
			return usage.Micros
		}
	}
	return 0
}

// write prints the result for people.
func (r *Result) write(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "scenario\t%s\n", r.Scenario)
	fmt.Fprintf(table, "decisions\t%.0f/s\t%d in %.2f s\n", r.PerSecond, r.Decisions, r.Seconds)
	fmt.Fprintf(table, "latency\tp50 %.2f ms\tp90 %.2f ms\tp99 %.2f ms\tmax %.2f ms\n",
		r.P50/1e3, r.P90/1e3, r.P99/1e3, r.Max/1e3)
	fmt.Fprintf(table, "sent late\tp99 %.2f ms\n", r.LateP99/1e3)
	fmt.Fprintf(table, "over limit\t%.1f %%\n", 100*r.OverLimit)
	fmt.Fprintf(table, "errors\t%d\t%s\n", r.Errors, r.FirstError)
	for _, usage := range r.CPU {
		fmt.Fprintf(table, "CPU\t%.2f µs a decision\t%s\n", usage.Micros, usage.Name)
	}
	if len(r.CPU) > 0 {
		fmt.Fprintf(table, "CPU\t%.2f µs a decision\tin sum\n", r.CPUSum)
	}
	fmt.Fprintf(table, "(CPU\t%.2f µs a decision\tthe load itself, in no sum)\n", r.LoadCPU)
	return table.Flush()
}

func writeJSON(out io.Writer, value any) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}
