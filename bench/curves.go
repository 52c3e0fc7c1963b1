package main

import (
	"fmt"
	"math"
	"strings"
)

// Measures of the picture of growth: four panels, two in a row.
const (
	curvesWidth  px = 760
	curvesTop    px = 90
	panelWidth   px = 372
	panelHeight  px = 240
	plotLeft     px = 50 // within a panel
	plotTop      px = 30
	plotWidth    px = 300
	plotHeight   px = 168
	curvesBottom px = 0
)

// plot is one panel: an axis, and the courses along it.
type plot struct {
	*picture
	origin  point // the lower left corner
	courses []course
	most    float64 // µs, at the top
	step    float64
	tenfold bool // each tenfold is a step to the right; else each number is what it is
}

// picture draws a panel an axis, all to one scale.
func (g *growth) picture(subtitle string) ([]byte, error) {
	drawn := &picture{Width: curvesWidth, Title: "CPU µs a decision, as there is more and more"}
	drawn.text(point{16, 48}, subtitle, "muted small")
	drawn.legend(point{16, 71}, []entry{
		{"noop", "the no-op"}, {"memory", "envoy-rls, in memory"}, {"service", "envoy-rls with Redis, and Redis"},
	})
	rows := (len(g.axes) + 1) / 2
	drawn.Height = curvesTop + px(rows)*panelHeight + curvesBottom
	for i, axis := range g.axes {
		courses := g.courses(axis)
		if len(courses) == 0 {
			continue
		}
		corner := point{px(i%2) * panelWidth, curvesTop + px(i/2)*panelHeight}
		drawn.text(point{corner.X + 16, corner.Y + 16}, axis.title, "head")
		newPlot(drawn, point{corner.X + plotLeft, corner.Y + plotTop + plotHeight}, courses).draw()
	}
	return drawn.svg()
}

// newPlot chooses the scales.
func newPlot(on *picture, origin point, courses []course) plot {
	made := plot{picture: on, origin: origin, courses: courses, most: 1}
	for _, course := range courses {
		for _, point := range course.points {
			made.most = max(made.most, point.micros)
		}
	}
	made.step = niceStep(made.most)
	made.most = math.Ceil(made.most/made.step) * made.step
	first, last := made.ends()
	made.tenfold = last >= 32*first
	return made
}

func (p plot) ends() (first, last int) {
	points := p.courses[0].points
	return points[0].n, points[len(points)-1].n
}

// at is where a point of a course stands.
func (p plot) at(n int, micros float64) point {
	first, last := p.ends()
	along := func(n int) float64 { return float64(n) }
	if p.tenfold {
		along = func(n int) float64 { return math.Log(float64(n)) }
	}
	share := 0.0
	if last > first {
		share = (along(n) - along(first)) / (along(last) - along(first))
	}
	return point{p.origin.X + px(share)*plotWidth, p.origin.Y - px(micros/p.most)*plotHeight}
}

func (p plot) draw() {
	first, last := p.ends()
	for micros := 0.0; micros <= p.most; micros += p.step {
		from, to := p.at(first, micros), p.at(last, micros)
		p.line(from, point{p.origin.X + plotWidth, to.Y}, "grid")
		p.text(point{from.X - 8, from.Y + 4}, fmt.Sprintf("%g", micros), "muted small end")
	}
	for _, measured := range p.courses[0].points {
		p.text(point{p.at(measured.n, 0).X, p.origin.Y + 18}, count(measured.n), "muted small middle")
	}
	for _, course := range p.courses {
		drawn := curve{Class: paint(course.server)}
		for _, measured := range course.points {
			drawn.Points = append(drawn.Points, p.at(measured.n, measured.micros))
		}
		p.Curves = append(p.Curves, drawn)
	}
}

// count is a number in few letters.
func count(n int) string {
	switch {
	case n >= 1_000_000:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", float64(n)/1e6), ".0") + "M"
	case n >= 1000:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", float64(n)/1e3), ".0") + "k"
	default:
		return fmt.Sprint(n)
	}
}
