package main

import (
	"bytes"
	"embed"
	"fmt"
	"text/template"
)

//go:embed *.svg.tmpl
var templates embed.FS

// px is a length in tenths of a pixel. Whole numbers print alike on every machine.
type px int

// String is the length as SVG has it.
func (p px) String() string {
	if p%10 == 0 {
		return fmt.Sprint(int(p) / 10)
	}
	return fmt.Sprintf("%d.%d", p/10, p%10)
}

// draw fills a picture's template.
func draw(name string, data any) ([]byte, error) {
	t, err := template.ParseFS(templates, name+".svg.tmpl")
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := t.Execute(&out, data); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// rect is a rectangle by its upper left corner.
type rect struct{ X, Y, W, H px }

// label is a text at a place.
type label struct {
	X, Y px
	Text string
}

// frame is a picture's card, and its vertical lines, which end at Foot.
type frame struct {
	Height, Card, Foot px
	Marks              []label
}

func newFrame(height px) frame {
	return frame{Height: height, Card: height - 10, Foot: height - 360}
}

// mark draws a line with a text at its foot.
func (f *frame) mark(x px, text string) {
	f.Marks = append(f.Marks, label{x, f.Foot + 180, text})
}

// name is what stands left of a contender's row.
func (c contender) label(y px) []label {
	if c.short == "" {
		return []label{{160, y, c.name}}
	}
	return []label{{160, y, c.name}, {160, y + 160, c.short}}
}

// edge is how hits pass around a window's edge, a row for each contender.
type edge struct {
	frame
	Rows []edgeRow
}

type edgeRow struct {
	Names          []label
	Top, Base      px
	Bars           []rect
	From, To, Y    px // the fullest window
	Fullest        label
	Scale          label
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

func edgePicture() edge {
	instant := int64(start + window)
	hits := flood(instant, instant+2*window)
	e := edge{frame: newFrame(edgeRowTop + px(len(contenders))*edgePitch + 360)}
	for i, c := range contenders {
		e.Rows = append(e.Rows, e.row(c, play(c.limit, hits), edgeRowTop+px(i)*edgePitch))
	}
	for n, text := range []string{"window's edge", "+ W", "+ 2 W"} {
		e.mark(e.at(int64(n)*window), text)
	}
	return e
}

func (e edge) row(c contender, admitted []int64, top px) edgeRow {
	base := top + limit*edgeHit
	r := edgeRow{
		Names: c.label(top + 360), Top: top, Base: base, LeftEnd: edgeLeft, Right: e.at(2*window + window/10),
		Scale: label{edgeLeft - 60, top + 40, fmt.Sprint(limit)},
	}
	instant := int64(start + window)
	perBin := map[int64]int{}
	for _, at := range admitted {
		perBin[(at-instant+window)/(window/bins)-bins]++
	}
	for bin := int64(-1); bin < 2*bins; bin++ {
		if h := px(perBin[bin]) * edgeHit; h > 0 {
			r.Bars = append(r.Bars, rect{e.at(bin*window/bins) + 5, base - h, edgeWindow/bins - 10, h})
		}
	}
	count, last := most(admitted, window)
	first := admitted[last-count+1] - instant
	r.From, r.To, r.Y = e.at(first), e.at(first+window), base+100
	r.Fullest = label{(r.From + r.To) / 2, base + 240, fmt.Sprintf("%d within W", count)}
	return r
}

// bounds is the most that passes in any window, a row for each contender.
type bounds struct {
	frame
	Rows []boundsRow
}

type boundsRow struct {
	Names           []label
	Worst, Random   rect
	Promise         px
	Top, Bottom     px
	Worsts, Randoms label
}

const (
	boundsLeft  px = 1800
	boundsLimit px = 2400
	boundsTop   px = 960
	boundsPitch px = 620
	barHeight   px = 180
)

func boundsPicture(results [][]result) bounds {
	b := bounds{frame: newFrame(boundsTop + px(len(contenders))*boundsPitch + 280)}
	for i, c := range contenders {
		worst := 0
		for p := range patterns {
			worst = max(worst, results[p][i].inWindow)
		}
		top := boundsTop + px(i)*boundsPitch
		promise := hitsWide(c.promise)
		r := boundsRow{
			Names: c.label(top + 180), Promise: boundsLeft + promise, Top: top - 40, Bottom: top + 2*barHeight + 60,
			Worst:  rect{boundsLeft, top, hitsWide(worst), barHeight},
			Random: rect{boundsLeft, top + barHeight + 20, hitsWide(results[2][i].inWindow), barHeight},
		}
		r.Worsts, r.Randoms = beside(r.Worst, r.Promise, worst), beside(r.Random, r.Promise, results[2][i].inWindow)
		b.Rows = append(b.Rows, r)
	}
	for n, text := range []string{"0", "L", "2 L"} {
		b.mark(boundsLeft+px(n)*boundsLimit, text)
	}
	return b
}

func hitsWide(hits int) px { return px(hits) * boundsLimit / limit }

// beside is the label at a bar's end, past the line of the promise if that is near.
func beside(bar rect, promise px, hits int) label {
	x := bar.X + bar.W
	if promise-x < 700 {
		x = promise
	}
	return label{x + 80, bar.Y + 140, hundredths(hits, limit) + " L"}
}
