package main

import (
	"slices"
	"strings"
	"testing"
)

// measuredOnce holds a round in which the second build of the memory store is the better one.
func measuredOnce() *comparison {
	rounds := newComparison()
	rounds.add(noopName, &Result{Scenario: "spread", CPUSum: 20, PerSecond: 1000, CPU: []Usage{{"noop", 20}}})
	rounds.add("memory", &Result{Scenario: "spread", CPUSum: 18, PerSecond: 1000, CPU: []Usage{{"envoy-rls", 18}}})
	rounds.add("after/memory", &Result{Scenario: "spread", CPUSum: 15, PerSecond: 1200, CPU: []Usage{{"envoy-rls", 15}}})
	rounds.add("redis", &Result{Scenario: "spread", CPUSum: 22, PerSecond: 950, CPU: []Usage{{"redis-server", 4}, {"envoy-rls", 18}}})
	rounds.add(baselineName, &Result{Scenario: "spread", CPUSum: 8, CPU: []Usage{{"redis-server", 8}}})
	rounds.add(noopName, &Result{Scenario: "spread, 3000/s", P50: 300, P99: 1000})
	rounds.add("redis", &Result{Scenario: "spread, 3000/s", P50: 600, P99: 2500})
	rounds.heap["memory"], rounds.heap["after/memory"] = 200, 139
	return rounds
}

func TestEachTargetIsJudgedForEachBuild(t *testing.T) {
	builds := []Binary{{}, {Name: "after"}}
	got := new(strings.Builder)
	if err := writeVerdicts(got, measuredOnce().verdicts(builds)); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(got.String()) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	want := []string{
		"server scenario figure target measured middle half after middle half",
		"memory spread CPU / no-op ≤ 0.80 0.90 MISSED 0.90 to 0.90 0.75 met 0.75 to 0.75",
		"redis spread CPU / no-op ≤ 1.25 1.10 met 1.10 to 1.10",
		"redis spread Redis CPU / INCRBY+EXPIRE ≤ 0.60 0.50 met 0.50 to 0.50",
		"memory spread decisions/s / no-op ≥ 1.10 1.00 MISSED 1.00 to 1.00 1.20 met 1.20 to 1.20",
		"redis spread decisions/s / no-op ≥ 0.90 0.95 met 0.95 to 0.95",
		"redis spread, 3000/s p50 ms above no-op ≤ 0.40 0.30 met 0.30 to 0.30",
		"redis spread, 3000/s p99 ms above no-op ≤ 1.00 1.50 MISSED 1.50 to 1.50",
		"memory 1M counters bytes a counter ≤ 140 200.00 MISSED 200.00 to 200.00 139.00 met 139.00 to 139.00",
	}
	if !slices.Equal(lines, want) {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
}

func TestEveryTargetIsOfSomethingThatCompareMeasures(t *testing.T) {
	tasks := append(scenarioNames(), steadyName(3000))
	servers := []string{memoryName, redisStore}
	for _, target := range targets {
		if figures[target.figure] == nil || !slices.Contains(tasks, target.scenario) || !slices.Contains(servers, target.server) {
			t.Errorf("%+v", target)
		}
		baseline := target.over == baselineName && slices.Contains([]string{"spread", "hot"}, target.scenario)
		if target.over != noopName && !baseline {
			t.Errorf("nothing to set it against: %+v", target)
		}
	}
}

func TestAFindingTellsBetweenWhatItsMiddleHalfLies(t *testing.T) {
	got := newFinding("", []float64{9, 1, 5, 4, 3, 2, 6, 8, 7}, func(float64) bool { return true })
	if want := (Finding{"", 5, 3, 7, true}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
