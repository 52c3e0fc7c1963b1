package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
)

// table is what was seen, for people.
func (t *topOfAll) table() string {
	b := &strings.Builder{}
	fmt.Fprintf(b, "%d of %d replicas, %.1f calls a second, %.1f refused\n\n", t.answered(), len(t.Replicas), t.Calls, t.Refused)
	replicas := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprint(replicas, "REPLICA\tCALLS/S\tREFUSED/S\tSTORE\tRULES\n")
	for i := range t.Replicas {
		if r := &t.Replicas[i]; r.Error == "" {
			r.write(replicas)
		}
	}
	for i := range t.Replicas { // behind the others, whose columns they would break
		if r := &t.Replicas[i]; r.Error != "" {
			fmt.Fprintf(replicas, "%s\tno answer: %s\n", onTerminal(r.Replica), onTerminal(r.Error))
		}
	}
	_ = replicas.Flush() // a Builder takes all
	if t.rulesDiffer() {
		fmt.Fprint(b, "the rules of replicas differ\n")
	}
	writeTopRows(b, "REFUSED BY RULE", t.Rules)
	writeTopRows(b, "REFUSED VALUES", t.Values)
	writeTopRows(b, "HOTTEST COUNTERS", t.Counters)
	if len(t.Values)+len(t.Counters) > 0 && t.keysDiffer() {
		fmt.Fprint(b, "\nvalues are hashed by several keys, and are not added up: give all replicas one by --redact-key-file (REDACT_KEY_FILE)\n")
	}
	return b.String()
}

func (r *topReplica) write(w io.Writer) {
	fmt.Fprintf(w, "%s\t%.1f\t%.1f\t%s\t%s\n", onTerminal(r.Replica), r.Calls, r.Refused, onTerminal(r.Store.words()), onTerminal(r.RulesHash))
}

// words are a store's state.
func (s *topStore) words() string {
	if s.Kind == string(storeMemory) {
		return s.Kind
	}
	words := []string{fmt.Sprintf("%s %.1f ms, 99%% %.1f ms", s.Kind, s.MedianMS, s.P99MS)}
	if s.Calls == 0 {
		words[0] = s.Kind + " not asked"
	}
	open := 0
	for _, state := range s.Breakers {
		if state != "closed" {
			open++
		}
	}
	if open > 0 {
		words = append(words, fmt.Sprintf("%d of %d breakers open", open, len(s.Breakers)))
	}
	return strings.Join(words, ", ")
}

func (t *topOfAll) rulesDiffer() bool {
	return t.differ(func(r *topReplica) string { return r.RulesHash })
}

func (t *topOfAll) keysDiffer() bool {
	return t.differ(func(r *topReplica) string { return r.ValuesKey })
}

// differ tells whether replicas that answered differ in something.
func (t *topOfAll) differ(in func(*topReplica) string) bool {
	seen := map[string]bool{}
	for i := range t.Replicas {
		if t.Replicas[i].Error == "" {
			seen[in(&t.Replicas[i])] = true
		}
	}
	return len(seen) > 1
}

func writeTopRows(b *strings.Builder, title string, rows []topRow) {
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\n/S\t%s\n", title)
	for _, r := range rows {
		words := onTerminal(r.Rule)
		if r.Descriptor != "" {
			words += "\t" + onTerminal(r.Descriptor)
		}
		if r.Tried {
			words += "\twould be"
		}
		fmt.Fprintf(w, "%.1f\t%s\n", r.PerSecond, words)
	}
	_ = w.Flush() // a Builder takes all
	if len(rows) == 0 {
		fmt.Fprint(b, "-  none\n")
	}
}

// screen shows a text in the place of the one before if it is a terminal, else one after the other.
type screen struct {
	out      io.Writer
	terminal bool
}

func newScreen(out io.Writer) *screen {
	s := &screen{out: out}
	if f, ok := out.(*os.File); ok && os.Getenv("TERM") != "dumb" {
		about, err := f.Stat()
		s.terminal = err == nil && about.Mode()&os.ModeCharDevice != 0
	}
	return s
}

// What terminals are told: to begin at the upper left, to clear the rest of a line, and all below.
const (
	cursorHome = "\x1b[H"
	clearLine  = "\x1b[K"
	clearBelow = "\x1b[J"
)

func (s *screen) show(text string) error {
	if s.terminal {
		text = cursorHome + strings.ReplaceAll(text, "\n", clearLine+"\n") + clearBelow
	} else {
		text += "\n"
	}
	_, err := io.WriteString(s.out, text)
	return err
}
