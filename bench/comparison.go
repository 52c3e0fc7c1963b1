package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// noopName is the contender that others are a ratio to.
const noopName = "no-op"

// comparison holds the results of each server in each scenario, one a turn.
type comparison struct {
	order   []cell // in which they were first measured
	results map[cell][]*Result
	heap    map[string]float64 // bytes a counter, by server
}

// cell is a server in a scenario.
type cell struct{ scenario, server string }

func newComparison() *comparison {
	return &comparison{results: map[cell][]*Result{}, heap: map[string]float64{}}
}

// add takes a server's result of one turn. A turn has one of each server.
func (c *comparison) add(server string, result *Result) {
	at := cell{result.Scenario, server}
	if len(c.results[at]) == 0 {
		c.order = append(c.order, at)
	}
	c.results[at] = append(c.results[at], result)
}

// merge adds what another one found elsewhere.
func (c *comparison) merge(other *comparison) {
	for _, at := range other.order {
		for _, result := range other.results[at] {
			c.add(at.server, result)
		}
	}
}

// turns is how many there were.
func (c *comparison) turns() int {
	most := 0
	for _, results := range c.results {
		most = max(most, len(results))
	}
	return most
}

// Row is a server in a scenario: medians over the turns. A ratio is to the no-op in the same turn, then the median.
// Times are in microseconds.
type Row struct {
	Scenario    string  `json:"scenario"`
	Server      string  `json:"server"`
	CPUSum      float64 `json:"cpu_us_per_decision"` // 0 if no process was named
	CPURatio    float64 `json:"cpu_ratio"`
	CPU         []Usage `json:"cpu,omitempty"`
	PerSecond   float64 `json:"decisions_per_second"`
	PerSecRatio float64 `json:"decisions_per_second_ratio"`
	P50         float64 `json:"p50_us"`
	P99         float64 `json:"p99_us"`
	OverLimit   float64 `json:"over_limit_share"`
	Errors      uint64  `json:"errors"` // of all turns
	FirstError  string  `json:"first_error,omitempty"`
}

// rows gives them by scenario, servers in the order of their measurement.
func (c *comparison) rows() []Row {
	byScenario := slices.Clone(c.order)
	slices.SortStableFunc(byScenario, func(a, b cell) int {
		return slices.IndexFunc(c.order, inScenario(a.scenario)) - slices.IndexFunc(c.order, inScenario(b.scenario))
	})
	rows := make([]Row, len(byScenario))
	for i, at := range byScenario {
		rows[i] = newRow(at, c.results[at], c.results[cell{at.scenario, noopName}])
	}
	return rows
}

func inScenario(name string) func(cell) bool {
	return func(c cell) bool { return c.scenario == name }
}

// newRow takes as many results of the floor, from the same turns.
func newRow(at cell, results, floor []*Result) Row {
	over := func(value func(*Result) float64) float64 { return medianOf(results, value) }
	cpu := func(r *Result) float64 { return r.CPUSum }
	perSecond := func(r *Result) float64 { return r.PerSecond }
	row := Row{
		Scenario:    at.scenario,
		Server:      at.server,
		CPUSum:      over(cpu),
		CPURatio:    median(ratios(results, floor, cpu)),
		PerSecond:   over(perSecond),
		PerSecRatio: median(ratios(results, floor, perSecond)),
		P50:         over(func(r *Result) float64 { return r.P50 }),
		P99:         over(func(r *Result) float64 { return r.P99 }),
		OverLimit:   over(func(r *Result) float64 { return r.OverLimit }),
	}
	for i, usage := range results[0].CPU {
		row.CPU = append(row.CPU, Usage{usage.Name, over(func(r *Result) float64 { return r.CPU[i].Micros })})
	}
	for _, result := range results {
		row.Errors += result.Errors
		if row.FirstError == "" {
			row.FirstError = result.FirstError
		}
	}
	return row
}

func medianOf(results []*Result, value func(*Result) float64) float64 {
	values := make([]float64, len(results))
	for i, result := range results {
		values[i] = value(result)
	}
	return median(values)
}

// ratios are 0 where the floor is.
func ratios(results, floor []*Result, value func(*Result) float64) []float64 {
	all := make([]float64, len(results))
	for i, result := range results {
		if under := value(floor[i]); under > 0 {
			all[i] = value(result) / under
		}
	}
	return all
}

// median sorts the values and gives the middle one, or the mean of the two in the middle.
func median(values []float64) float64 {
	slices.Sort(values)
	half := len(values) / 2
	if len(values)%2 == 1 {
		return values[half]
	}
	return (values[half-1] + values[half]) / 2
}

// writeRows prints a table for people.
func writeRows(out io.Writer, rows []Row) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "scenario\tserver\tCPU µs\tratio\tdecisions/s\tratio\tp50 ms\tp99 ms\tover\terrors\t  CPU µs by process")
	for _, row := range rows {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%.0f\t%.2f\t%.2f\t%.2f\t%.0f %%\t%d\t  %s\n",
			row.Scenario, row.Server, known(row.CPUSum), known(row.CPURatio), row.PerSecond, row.PerSecRatio,
			row.P50/1e3, row.P99/1e3, 100*row.OverLimit, row.Errors, byProcess(row.CPU))
	}
	return table.Flush()
}

// known prints a figure of CPU time, or a dash where there is none.
func known(figure float64) string {
	if figure == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", figure)
}

func byProcess(usages []Usage) string {
	parts := make([]string, len(usages))
	for i, usage := range usages {
		parts[i] = fmt.Sprintf("%s %.2f", usage.Name, usage.Micros)
	}
	return strings.Join(parts, ", ")
}
