package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/envoy-rls/envoy-rls/internal/simulate"
)

// progress is a line on a terminal that says how far a simulation is. It is for one goroutine.
type progress struct {
	w     io.Writer // nil: nobody looks
	part  func(at int64) float64
	now   func() time.Time
	last  time.Time
	shown int // characters
}

// newProgress writes to a terminal, and to nothing else.
func newProgress(w io.Writer, sim *simulation) *progress {
	p := &progress{part: sim.done, now: time.Now}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.w, p.last = w, p.now()
	}
	return p
}

// done is the part of the traffic that has been read, or less than 0 if that is not known.
func (sim *simulation) done(at int64) float64 {
	switch {
	case sim.log == nil:
		return float64(at-simulate.Begin) / float64(time.Duration(sim.command.Traffic.For).Microseconds())
	case sim.log.Size > 0:
		return float64(sim.log.Read.Load()) / float64(sim.log.Size)
	}
	return -1
}

// show says how far it is, a few times a second.
func (p *progress) show(requests, at int64) {
	if p.w == nil || p.now().Sub(p.last) < 200*time.Millisecond {
		return
	}
	p.last = p.now()
	const cells = 30
	bar := ""
	if part := p.part(at); part >= 0 {
		n := min(int(part*cells), cells)
		bar = fmt.Sprintf("%s%s %3.0f %%  ", strings.Repeat("█", n), strings.Repeat("░", cells-n), 100*min(part, 1))
	}
	text := fmt.Sprintf("%s%d requests, up to %s", bar, requests, time.UnixMicro(at).UTC().Format(instantLayout))
	width := utf8.RuneCountInString(text)
	fmt.Fprintf(p.w, "\r%s%s", text, strings.Repeat(" ", max(p.shown-width, 0)))
	p.shown = max(p.shown, width)
}

// clear takes the line away.
func (p *progress) clear() {
	if p.shown > 0 {
		fmt.Fprintf(p.w, "\r%s\r", strings.Repeat(" ", p.shown))
	}
}
