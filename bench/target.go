package main

import (
	"fmt"
	"strings"
)

// target is what is demanded of a server: a bound on a figure, set against another server's in the same turn.
type target struct {
	figure   string // of figures
	scenario string
	server   string
	over     string // the server that it is set against
	by       relation
	bound    float64
}

// relation is how two figures of one turn are set against each other.
type relation uint8

const (
	ratioAtMost  relation = iota
	ratioAtLeast          // the only one that wants more
	aboveAtMost           // the difference, for which the figure's unit counts
)

// figures are what targets are about.
var figures = map[string]func(*Result) float64{
	"CPU":         func(r *Result) float64 { return r.CPUSum },
	"Redis CPU":   func(r *Result) float64 { return r.cpuOf(redisName) },
	"decisions/s": func(r *Result) float64 { return r.PerSecond },
	"p50 ms":      func(r *Result) float64 { return r.P50 / 1e3 },
	"p99 ms":      func(r *Result) float64 { return r.P99 / 1e3 },
}

// targets is the table of what is demanded. A missed one is printed, and fails nothing.
var targets = []target{
	{"CPU", "nothing-matches", memoryName, noopName, ratioAtMost, 0.75},
	{"CPU", "spread", memoryName, noopName, ratioAtMost, 0.80},
	{"CPU", "hot", memoryName, noopName, ratioAtMost, 0.80},
	{"CPU", "hot-over", memoryName, noopName, ratioAtMost, 0.75},
	{"CPU", "nested", memoryName, noopName, ratioAtMost, 0.95},
	{"CPU", "sliding", memoryName, noopName, ratioAtMost, 0.85},
	{"CPU", "bucket", memoryName, noopName, ratioAtMost, 0.85},

	{"CPU", "nothing-matches", redisStore, noopName, ratioAtMost, 0.75},
	{"CPU", "spread", redisStore, noopName, ratioAtMost, 1.25},
	{"CPU", "hot", redisStore, noopName, ratioAtMost, 1.0},
	{"CPU", "hot-over", redisStore, noopName, ratioAtMost, 0.80},
	{"CPU", "nested", redisStore, noopName, ratioAtMost, 1.5},
	{"CPU", "sliding", redisStore, noopName, ratioAtMost, 1.35},
	{"CPU", "bucket", redisStore, noopName, ratioAtMost, 1.35},

	{"Redis CPU", "spread", redisStore, baselineName, ratioAtMost, 0.6},
	{"Redis CPU", "hot", redisStore, baselineName, ratioAtMost, 0.15},

	{"decisions/s", "spread", memoryName, noopName, ratioAtLeast, 1.1},
	{"decisions/s", "spread", redisStore, noopName, ratioAtLeast, 0.9},

	{"p50 ms", "spread, 3000/s", memoryName, noopName, ratioAtMost, 1.15},
	{"p99 ms", "spread, 3000/s", memoryName, noopName, ratioAtMost, 1.15},
	{"p50 ms", "spread, 3000/s", redisStore, noopName, aboveAtMost, 0.4},
	{"p99 ms", "spread, 3000/s", redisStore, noopName, aboveAtMost, 1},
}

// heapTarget bounds the bytes that a counter of the memory store takes.
const heapTarget = 140

// Verdict is a target beside what was found for each build, the first one first.
type Verdict struct {
	Figure   string    `json:"figure"`
	Scenario string    `json:"scenario"`
	Server   string    `json:"server"`
	Demand   string    `json:"demand"`
	Findings []Finding `json:"findings"`
	of       target
}

// Finding is what was measured for a target, of a build of the service: the median, and between what the middle half of
// all turns lies, which tells how far to believe it.
type Finding struct {
	Build    string  `json:"build,omitempty"` // empty for that of --binary
	Measured float64 `json:"measured"`
	Low      float64 `json:"low"`
	High     float64 `json:"high"`
	Met      bool    `json:"met"`
}

// newFinding sorts what was measured.
func newFinding(build string, measured []float64, met func(float64) bool) Finding {
	middle := median(measured)
	quarter := len(measured) / 4
	return Finding{build, middle, measured[quarter], measured[len(measured)-1-quarter], met(middle)}
}

// verdicts gives those of the targets whose servers were measured.
func (c *comparison) verdicts(builds []Binary) []Verdict {
	var all []Verdict
	for _, t := range targets {
		verdict := Verdict{Figure: t.title(), Scenario: t.scenario, Server: t.server, Demand: t.demand(), of: t}
		for _, build := range builds {
			if measured := c.judge(t, build.serverName(t.server)); measured != nil {
				verdict.Findings = append(verdict.Findings, newFinding(build.Name, measured, t.met))
			}
		}
		if len(verdict.Findings) > 0 {
			all = append(all, verdict)
		}
	}
	return append(all, c.heapVerdict(builds)...)
}

// heapVerdict is that of the memory of a counter, if it was measured.
func (c *comparison) heapVerdict(builds []Binary) []Verdict {
	verdict := Verdict{Figure: "bytes a counter", Scenario: "1M counters", Server: memoryName, Demand: fmt.Sprintf("≤ %d", heapTarget)}
	for _, build := range builds {
		if bytes, found := c.heap[build.serverName(memoryName)]; found {
			atMost := func(bytes float64) bool { return bytes <= heapTarget }
			verdict.Findings = append(verdict.Findings, newFinding(build.Name, []float64{bytes}, atMost))
		}
	}
	if len(verdict.Findings) == 0 {
		return nil
	}
	return []Verdict{verdict}
}

// judge sets a server's figure against the other's within each turn.
func (c *comparison) judge(t target, server string) (measured []float64) {
	results, others := c.results[cell{t.scenario, server}], c.results[cell{t.scenario, t.over}]
	if len(results) == 0 || len(others) == 0 {
		return nil
	}
	figure := figures[t.figure]
	if t.by != aboveAtMost {
		return ratios(results, others, figure)
	}
	measured = make([]float64, len(results))
	for i := range results {
		measured[i] = figure(results[i]) - figure(others[i])
	}
	return measured
}

func (t target) met(measured float64) bool {
	if t.by == ratioAtLeast {
		return measured >= t.bound
	}
	return measured <= t.bound
}

func (t target) demand() string {
	if t.by == ratioAtLeast {
		return fmt.Sprintf("≥ %.2f", t.bound)
	}
	return fmt.Sprintf("≤ %.2f", t.bound)
}

// title is the figure with what it is set against.
func (t target) title() string {
	if t.by == aboveAtMost {
		return t.figure + " above " + t.over
	}
	return strings.TrimSuffix(t.figure, " ms") + " / " + t.over
}
