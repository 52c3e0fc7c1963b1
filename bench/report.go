package main

import (
	"cmp"
	"fmt"
	"io"
	"text/tabwriter"
)

// report is what a comparison ends in.
type report struct {
	Rows     []Row     `json:"rows"`
	Verdicts []Verdict `json:"targets"`
}

// write prints it for people: first the targets, then what they are made of.
func (r report) write(out io.Writer) error {
	if len(r.Verdicts) > 0 {
		if err := writeVerdicts(out, r.Verdicts); err != nil {
			return err
		}
		fmt.Fprintln(out)
	}
	return writeRows(out, r.Rows)
}

// writeVerdicts prints a line a target, with what each build measured.
func writeVerdicts(out io.Writer, verdicts []Verdict) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(table, "server\tscenario\tfigure\ttarget")
	for _, finding := range verdicts[0].Findings {
		fmt.Fprintf(table, "\t%s\t\tmiddle half", cmp.Or(finding.Build, "measured"))
	}
	fmt.Fprintln(table)
	for _, v := range verdicts {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s", v.Server, v.Scenario, v.Figure, v.Demand)
		for _, finding := range v.Findings {
			fmt.Fprintf(table, "\t%.2f\t%s\t%.2f to %.2f", finding.Measured, finding.word(), finding.Low, finding.High)
		}
		fmt.Fprintln(table)
	}
	return table.Flush()
}

// word says plainly whether the target was met.
func (f Finding) word() string {
	if f.Met {
		return "met"
	}
	return "MISSED"
}
