package chart

import (
	"fmt"
	"strings"
	"time"
)

// Rate is how much of what was asked for was admitted, by time, against a limit.
type Rate struct {
	Title, Subtitle string
	Limit           int64
	// From is where the first value stands; the others follow at each Step.
	From time.Time
	Step time.Duration
	// Asked and Admitted are as long as each other, and not empty.
	Asked, Admitted []int64
}

const (
	rateLeft   Px = 800
	rateWidth  Px = 6300
	rateTop    Px = 1000
	rateHeight Px = 2200
)

// ratePicture is a Rate as its template has it.
type ratePicture struct {
	Frame
	Title, Subtitle       string
	Left, Right, Top, Low Px
	Asked, Admitted       string // paths
	LimitY                Px
	LimitText             string
	Levels                []Label
	AskedText             string
}

// SVG draws r.
func (r *Rate) SVG() ([]byte, error) {
	p := ratePicture{
		Frame: NewFrame(rateTop + rateHeight + 360), Title: r.Title, Subtitle: r.Subtitle,
		Left: rateLeft, Right: rateLeft + rateWidth, Top: rateTop, Low: rateTop + rateHeight,
		AskedText: "asked for",
	}
	asked, top := most(r.Asked), max(most(r.Admitted), r.Limit, 1)
	top = min(top*3/2+1, max(top, asked)*11/10+1)
	if asked > top { // a flood must not make the limit a line at the bottom
		p.AskedText = fmt.Sprintf("asked for: up to %d, beyond the picture", asked)
	}
	y := func(v int64) Px { return p.Low - Px(min(v, top)*int64(rateHeight)/top) }
	p.Asked, p.Admitted = r.area(r.Asked, y), r.area(r.Admitted, y)
	p.LimitY = y(r.Limit)
	p.LimitText = fmt.Sprint("limit ", r.Limit)
	for step := nice(top / 4); len(p.Levels)*int(step) <= int(top); {
		v := int64(len(p.Levels)) * step
		p.Levels = append(p.Levels, Label{rateLeft - 80, y(v), fmt.Sprint(v)})
	}
	r.times(&p)
	return Draw(templates, "rate", p)
}

// area is the path around what lies below values.
func (r *Rate) area(values []int64, y func(int64) Px) string {
	var b strings.Builder
	fmt.Fprintf(&b, "M%s %s", rateLeft, y(0))
	for i, v := range values {
		fmt.Fprintf(&b, " L%s %s", r.x(int64(i)), y(v))
	}
	fmt.Fprintf(&b, " L%s %s Z", r.x(int64(len(values)-1)), y(0))
	return b.String()
}

func (r *Rate) x(i int64) Px {
	return rateLeft + Px(i*int64(rateWidth)/max(int64(len(r.Asked)-1), 1))
}

// times are those at the foot of pictures, of which the first is taken that stands often enough.
var times = []struct {
	every  time.Duration
	layout string
}{
	{7 * 24 * time.Hour, "Jan 2"}, {24 * time.Hour, "Jan 2"}, {6 * time.Hour, "Jan 2 15:04"}, {3 * time.Hour, "15:04"}, {time.Hour, "15:04"},
	{30 * time.Minute, "15:04"}, {10 * time.Minute, "15:04"}, {5 * time.Minute, "15:04"}, {time.Minute, "15:04"},
	{30 * time.Second, "15:04:05"}, {10 * time.Second, "15:04:05"}, {5 * time.Second, "15:04:05"}, {time.Second, "15:04:05"},
}

// times marks some round times.
func (r *Rate) times(p *ratePicture) {
	whole := r.Step * time.Duration(len(r.Asked)-1)
	for _, t := range times {
		if whole/t.every < 4 && t.every > time.Second {
			continue
		}
		every := t.every * max(1, whole/t.every/8)
		for at := r.From.Truncate(every); !at.After(r.From.Add(whole)); at = at.Add(every) {
			if !at.Before(r.From) {
				p.Mark(rateLeft+Px(int64(at.Sub(r.From))/max(int64(whole)/int64(rateWidth), 1)), at.UTC().Format(t.layout))
			}
		}
		return
	}
}

func most(values []int64) int64 {
	var m int64
	for _, v := range values {
		m = max(m, v)
	}
	return m
}

// nice is 1, 2 or 5 times a power of ten, and at least v.
func nice(v int64) int64 {
	for power := int64(1); ; power *= 10 {
		for _, n := range []int64{power, 2 * power, 5 * power} {
			if n >= v {
				return n
			}
		}
	}
}
