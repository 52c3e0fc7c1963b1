package main

import (
	"slices"
	"strings"
	"testing"
)

func TestTheMedianIsTheMiddle(t *testing.T) {
	for want, values := range map[float64][]float64{3: {5, 3, 1}, 2.5: {4, 1, 3, 2}, 7: {7}} {
		if got := median(values); got != want {
			t.Errorf("median %v, want %v", got, want)
		}
	}
}

// once is a result of one round.
func once(scenario string, cpu, perSecond float64) *Result {
	return &Result{Scenario: scenario, CPUSum: cpu, PerSecond: perSecond, CPU: []Usage{{"server", cpu}}, Errors: 1}
}

func TestRatiosAreTakenRoundByRound(t *testing.T) {
	rounds := newComparison()
	// The machine slows down by half in the second round, and again in the third.
	for _, slow := range []float64{1, 2, 4} {
		rounds.add(noopName, once("hot", 10*slow, 1000/slow))
		rounds.add("memory", once("hot", 15*slow, 800/slow))
		rounds.add(noopName, once("spread", 20*slow, 500/slow))
		rounds.add("memory", once("spread", 50*slow, 100/slow))
	}
	rows := rounds.rows()
	var order []string
	for _, row := range rows {
		order = append(order, row.Scenario+" "+row.Server)
	}
	if want := []string{"hot no-op", "hot memory", "spread no-op", "spread memory"}; !slices.Equal(order, want) {
		t.Fatalf("rows %q, want %q", order, want)
	}
	if hot := rows[1]; hot.CPUSum != 30 || hot.CPURatio != 1.5 || hot.PerSecond != 400 || hot.PerSecRatio != 0.8 || hot.Errors != 3 {
		t.Errorf("hot memory: %+v", hot)
	}
	if spread := rows[3]; spread.CPURatio != 2.5 || spread.PerSecRatio != 0.2 || spread.CPU[0] != (Usage{"server", 100}) {
		t.Errorf("spread memory: %+v", spread)
	}
}

func TestAServerWhoseProcessesAreNotNamedHasADashForCPU(t *testing.T) {
	rounds := newComparison()
	rounds.add(noopName, once("hot", 10, 1000))
	rounds.add("other", &Result{Scenario: "hot", PerSecond: 500})
	out := new(strings.Builder)
	if err := writeRows(out, rounds.rows()); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	if got := strings.Fields(lines[2])[:6]; !slices.Equal(got, []string{"hot", "other", "-", "-", "500", "0.50"}) {
		t.Errorf("row %q", got)
	}
}
