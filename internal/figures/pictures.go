package main

import (
	"embed"
	"fmt"

	"github.com/envoy-rls/envoy-rls/internal/chart"
)

//go:embed *.svg.tmpl
var templates embed.FS

type px = chart.Px

// label is what stands left of a contender's row.
func (c contender) label(y px) []chart.Label {
	if c.short == "" {
		return []chart.Label{{X: 160, Y: y, Text: c.name}}
	}
	return []chart.Label{{X: 160, Y: y, Text: c.name}, {X: 160, Y: y + 160, Text: c.short}}
}

// edge is how hits pass around a window's edge, a row for each contender.
type edge struct {
	chart.Frame
	Rows []edgeRow
}

type edgeRow struct {
	Names          []chart.Label
	Top, Base      px
	Bars           []chart.Rect
	From, To, Y    px // the fullest window
	Fullest        chart.Label
	Scale          chart.Label
	LeftEnd, Right px
}

const (
	edgeLeft   px = 1680 // a tenth of a window before the edge
	edgeWindow px = 2600
	edgeHit    px = 6
	edgeRowTop px = 840
	edgePitch  px = 960
	bins          = 20 // of a window
)

// at is where an instant stands, as µs from the edge.
func (edge) at(us int64) px { return edgeLeft + px(us*int64(edgeWindow)/window) + edgeWindow/10 }

func edgePicture() (edge, error) {
	instant := int64(start + window)
	hits := flood(instant, instant+2*window)
	e := edge{Frame: chart.NewFrame(edgeRowTop + px(len(contenders))*edgePitch + 360)}
	for i, c := range contenders {
		admitted, err := play(c.limit, hits)
		if err != nil {
			return edge{}, err
		}
		e.Rows = append(e.Rows, e.row(c, admitted, edgeRowTop+px(i)*edgePitch))
	}
	for n, text := range []string{"window's edge", "+ W", "+ 2 W"} {
		e.Mark(e.at(int64(n)*window), text)
	}
	return e, nil
}

func (e edge) row(c contender, admitted []int64, top px) edgeRow {
	base := top + limit*edgeHit
	r := edgeRow{
		Names: c.label(top + 360), Top: top, Base: base, LeftEnd: edgeLeft, Right: e.at(2*window + window/10),
		Scale: chart.Label{X: edgeLeft - 60, Y: top + 40, Text: fmt.Sprint(limit)},
	}
	instant := int64(start + window)
	perBin := map[int64]int{}
	for _, at := range admitted {
		perBin[(at-instant+window)/(window/bins)-bins]++
	}
	for bin := int64(-1); bin < 2*bins; bin++ {
		if h := px(perBin[bin]) * edgeHit; h > 0 {
			r.Bars = append(r.Bars, chart.Rect{X: e.at(bin*window/bins) + 5, Y: base - h, W: edgeWindow/bins - 10, H: h})
		}
	}
	count, last := most(admitted, window)
	first := admitted[last-count+1] - instant
	r.From, r.To, r.Y = e.at(first), e.at(first+window), base+100
	r.Fullest = chart.Label{X: (r.From + r.To) / 2, Y: base + 240, Text: fmt.Sprintf("%d within W", count)}
	return r
}

// bounds is the most that passes in any window, a row for each contender.
type bounds struct {
	chart.Frame
	Rows []boundsRow
}

type boundsRow struct {
	Names           []chart.Label
	Worst, Random   chart.Rect
	Promise         px
	Top, Bottom     px
	Worsts, Randoms chart.Label
}

const (
	boundsLeft  px = 1800
	boundsLimit px = 2400
	boundsTop   px = 960
	boundsPitch px = 620
	barHeight   px = 180
)

func boundsPicture(results [][]result) bounds {
	b := bounds{Frame: chart.NewFrame(boundsTop + px(len(contenders))*boundsPitch + 280)}
	for i, c := range contenders {
		worst := 0
		for p := range patterns {
			worst = max(worst, results[p][i].inWindow)
		}
		top := boundsTop + px(i)*boundsPitch
		promise := hitsWide(c.promise)
		r := boundsRow{
			Names: c.label(top + 180), Promise: boundsLeft + promise, Top: top - 40, Bottom: top + 2*barHeight + 60,
			Worst:  chart.Rect{X: boundsLeft, Y: top, W: hitsWide(worst), H: barHeight},
			Random: chart.Rect{X: boundsLeft, Y: top + barHeight + 20, W: hitsWide(results[2][i].inWindow), H: barHeight},
		}
		r.Worsts, r.Randoms = beside(r.Worst, r.Promise, worst), beside(r.Random, r.Promise, results[2][i].inWindow)
		b.Rows = append(b.Rows, r)
	}
	for n, text := range []string{"0", "L", "2 L"} {
		b.Mark(boundsLeft+px(n)*boundsLimit, text)
	}
	return b
}

func hitsWide(hits int) px { return px(hits) * boundsLimit / limit }

// beside is the label at a bar's end, past the line of the promise if that is near.
func beside(bar chart.Rect, promise px, hits int) chart.Label {
	x := bar.X + bar.W
	if promise-x < 700 {
		x = promise
	}
	return chart.Label{X: x + 80, Y: bar.Y + 140, Text: hundredths(hits, limit) + " L"}
}
