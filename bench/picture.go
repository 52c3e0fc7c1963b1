package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"strings"
	"text/template"
)

// pictureTemplate has what all pictures share: the card, and the colours by daylight and in the dark.
//
//go:embed picture.svg.tmpl
var pictureTemplate string

// px is a length in a picture.
type px float64

// String has a tenth of a pixel, which is as fine as anybody sees.
func (p px) String() string { return strings.TrimSuffix(fmt.Sprintf("%.1f", float64(p)), ".0") }

// picture is what is drawn, from the back to the front. Classes are those of the template.
type picture struct {
	Width, Height px
	Title         string
	Lines         []line
	Bars          []bar
	Curves        []curve
	Marks         []line
	Labels        []label
}

// point is a place, counted from the upper left corner.
type point struct{ X, Y px }

type line struct {
	X1, Y1, X2, Y2 px
	Class          string
}

type bar struct {
	X, Y, W, H px
	Class      string
}

// curve is a line through points, each with a dot.
type curve struct {
	Points []point
	Class  string
}

// label is a text whose baseline is at a place.
type label struct {
	X, Y  px
	Text  string
	Class string
}

// CardWidth leaves room for the card's border.
func (p *picture) CardWidth() px { return p.Width - 1 }

// CardHeight leaves room for the card's border.
func (p *picture) CardHeight() px { return p.Height - 1 }

func (p *picture) line(from, to point, class string) {
	p.Lines = append(p.Lines, line{from.X, from.Y, to.X, to.Y, class})
}

func (p *picture) mark(from, to point) {
	p.Marks = append(p.Marks, line{from.X, from.Y, to.X, to.Y, "mark"})
}

func (p *picture) text(at point, text, class string) {
	p.Labels = append(p.Labels, label{at.X, at.Y, text, class})
}

// entry is a colour and what it stands for.
type entry struct{ class, text string }

// legend explains colours in a line, and gives where the line may go on.
func (p *picture) legend(at point, entries []entry) px {
	const letter = 6.6 // as wide as one of the small text is at most, on average
	for _, e := range entries {
		p.Bars = append(p.Bars, bar{at.X, at.Y - 10, 11, 11, e.class})
		p.text(point{at.X + 16, at.Y}, e.text, "small")
		at.X += 16 + px(len(e.text))*letter + 16
	}
	return at.X
}

// svg writes the picture.
func (p *picture) svg() ([]byte, error) {
	parsed, err := template.New("picture").Parse(pictureTemplate)
	if err != nil {
		return nil, err
	}
	out := new(bytes.Buffer)
	if err := parsed.Execute(out, p); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// paint is the class of a server's colour: that of its store. Another build's is paler.
func paint(server string) string {
	build, store, another := strings.Cut(server, "/")
	if !another {
		build, store = "", server
	}
	class := "other"
	switch store {
	case noopName:
		class = "noop"
	case memoryName:
		class = "memory"
	case redisStore:
		class = "service"
	case baselineName:
		class = "redis"
	}
	if build != "" {
		class += " also"
	}
	return class
}

// niceStep is a round number, at most six of which make up the most that an axis shows.
func niceStep(most float64) float64 {
	for decade := 0.1; ; decade *= 10 {
		for _, factor := range []float64{1, 2, 5} {
			if most/(decade*factor) <= 6 {
				return decade * factor
			}
		}
	}
}
