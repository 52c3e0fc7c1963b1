// Package chart draws pictures for documents, as SVG: readable on light and dark ground, and without anything from
// elsewhere. The same data make the same bytes on every machine.
package chart

import (
	"bytes"
	"embed"
	"encoding/xml"
	"fmt"
	"io/fs"
	"strings"
	"text/template"
)

//go:embed *.svg.tmpl
var templates embed.FS

// Px is a length in tenths of a pixel. Whole numbers print alike on every machine.
type Px int

// String is the length as SVG has it.
func (p Px) String() string {
	if p%10 == 0 {
		return fmt.Sprint(int(p) / 10)
	}
	return fmt.Sprintf("%d.%d", p/10, p%10)
}

// Rect is a rectangle by its upper left corner.
type Rect struct{ X, Y, W, H Px }

// Label is a text at a place.
type Label struct {
	X, Y Px
	Text string
}

// Frame is a picture's card, 760 wide, and its vertical lines, which end at Foot.
type Frame struct {
	Height, Card, Foot Px
	Marks              []Label
}

// NewFrame returns the frame of a picture of a height.
func NewFrame(height Px) Frame {
	return Frame{Height: height, Card: height - 10, Foot: height - 360}
}

// Mark draws a line with a text at its foot.
func (f *Frame) Mark(x Px, text string) {
	f.Marks = append(f.Marks, Label{x, f.Foot + 180, text})
}

// Draw fills a picture's template, which is the file of its name in from, and may use this package's: "head", which takes
// the frame and begins a picture, and the classes of its style. A text from outside goes through the function xml.
func Draw(from fs.FS, name string, data any) ([]byte, error) {
	t := template.New(name + ".svg.tmpl").Funcs(template.FuncMap{"xml": escaped})
	if _, err := t.ParseFS(templates, "head.svg.tmpl"); err != nil {
		return nil, err
	}
	if _, err := t.ParseFS(from, name+".svg.tmpl"); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := t.Execute(&out, data); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// escaped is a text that can do no harm in XML.
func escaped(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a Builder never fails
	return b.String()
}
