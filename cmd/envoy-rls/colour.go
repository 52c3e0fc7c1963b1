package main

import (
	"os"

	"golang.org/x/term"
)

// colour is the number of a terminal's colour.
type colour string

const (
	red    colour = "31"
	green  colour = "32"
	yellow colour = "33"
)

// painted is a text in a colour if what is printed is read on a terminal, and NO_COLOR (no-color.org) does not say that it isn't
// wanted.
func (s streams) painted(c colour, text string) string {
	f, ok := s.out.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" || !term.IsTerminal(int(f.Fd())) {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}
