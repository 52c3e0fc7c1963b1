package main

import (
	"fmt"
	"slices"
	"strings"
)

// Measures of the picture of a comparison.
const (
	barsWidth  px = 760
	barsTop    px = 92
	barsLeft   px = 150
	barsRoom   px = 400 // for the longest bar; its label stands behind it
	barHeight  px = 13
	barPitch   px = 18
	groupHead  px = 26
	groupFoot  px = 8
	barsBottom px = 48
)

// bars draws the CPU time a decision of each server in each scenario, with marks where the targets are.
type bars struct {
	picture
	wide   func(micros float64) px
	next   px // where the next line begins
	bounds map[cell]boundary
}

// boundary is a target on CPU time, in µs.
type boundary struct {
	micros float64
	of     target
	met    bool
}

// barsPicture draws the rows of some scenarios, in the order of the rows.
func (r report) barsPicture(scenarios []string, subtitle string) ([]byte, error) {
	rows := slices.DeleteFunc(slices.Clone(r.Rows), func(row Row) bool {
		return row.CPUSum == 0 || !slices.Contains(scenarios, row.Scenario)
	})
	most := 1.0
	for _, row := range rows {
		most = max(most, row.CPUSum)
	}
	drawn := bars{
		picture: picture{Width: barsWidth, Title: "CPU µs a decision"},
		wide:    func(micros float64) px { return px(micros/most) * barsRoom },
		next:    barsTop,
		bounds:  r.boundaries(),
	}
	drawn.head(subtitle)
	for i, row := range rows {
		if i == 0 || row.Scenario != rows[i-1].Scenario {
			drawn.group(row.Scenario)
		}
		drawn.row(row)
	}
	drawn.scale(most)
	return drawn.svg()
}

// boundaries are the targets on CPU time, by what they bind.
func (r report) boundaries() map[cell]boundary {
	floor := map[string]float64{}
	for _, row := range r.Rows {
		if row.Server == noopName {
			floor[row.Scenario] = row.CPUSum
		}
	}
	all := map[cell]boundary{}
	for _, verdict := range r.Verdicts {
		if verdict.of.figure != "CPU" {
			continue
		}
		for _, finding := range verdict.Findings {
			at := cell{verdict.Scenario, Binary{Name: finding.Build}.serverName(verdict.Server)}
			all[at] = boundary{verdict.of.bound * floor[verdict.Scenario], verdict.of, finding.Met}
		}
	}
	return all
}

func (b *bars) head(subtitle string) {
	b.text(point{16, 48}, subtitle, "muted small")
	x := b.legend(point{16, 71}, []entry{
		{"noop", "the no-op"}, {"memory", "envoy-rls, in memory"}, {"service", "envoy-rls with Redis"}, {"redis", "Redis"},
	})
	b.mark(point{x + 5, 59}, point{x + 5, 74})
	b.text(point{x + 14, 71}, "the target: a share of the no-op", "small")
}

func (b *bars) group(scenario string) {
	b.next += groupHead
	b.text(point{16, b.next - 9}, scenario, "head")
}

// row draws a server: what Redis spends first, so that it stands beside that of others.
func (b *bars) row(row Row) {
	base := b.next + barHeight - 2
	b.text(point{barsLeft - 8, base}, row.Server, "muted small end")
	x := barsLeft
	usages := slices.Clone(row.CPU)
	slices.SortStableFunc(usages, func(a, b Usage) int { return rank(a) - rank(b) })
	for _, usage := range usages {
		class := paint(row.Server)
		if usage.Name == redisName {
			class = strings.Replace(class, "service", "redis", 1)
		}
		b.Bars = append(b.Bars, bar{x, b.next, b.wide(usage.Micros), barHeight, class})
		x += b.wide(usage.Micros)
	}
	text, class := fmt.Sprintf("%.1f µs", row.CPUSum), "small halo"
	if row.CPURatio > 0 && row.Server != noopName {
		text += fmt.Sprintf(", %.2f ×", row.CPURatio)
	}
	if bound, found := b.bounds[cell{row.Scenario, row.Server}]; found {
		mark := barsLeft + b.wide(bound.micros)
		b.mark(point{mark, b.next - 2}, point{mark, b.next + barHeight + 2})
		x = max(x, mark)
		if !bound.met {
			text, class = text+", target "+bound.of.demand(), "small halo missed"
		}
	}
	b.text(point{x + 8, base}, text, class)
	b.next += barPitch
}

// rank puts Redis before the service.
func rank(usage Usage) int {
	if usage.Name == redisName {
		return 0
	}
	return 1
}

// scale closes the picture with lines and what they stand for.
func (b *bars) scale(most float64) {
	foot := b.next + groupFoot
	step := niceStep(most)
	for micros := 0.0; micros <= most; micros += step {
		x := barsLeft + b.wide(micros)
		b.line(point{x, barsTop}, point{x, foot}, "grid")
		b.text(point{x, foot + 16}, fmt.Sprintf("%g", micros), "muted small middle")
	}
	b.Height = foot + barsBottom - 16
}
