package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

// matchWords say how a value was matched.
var matchWords = map[descriptors.Match]string{
	descriptors.MatchExact: "this value", descriptors.MatchListed: "one of a list of values", descriptors.MatchNetwork: "an address in a network",
	descriptors.MatchWildcard: "a wildcard", descriptors.MatchAny: "any value",
}

// writeExplanation writes an explanation in words, of which those about one thing stand on a line.
func writeExplanation(w io.Writer, x *rls.Explanation) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if x.At == "" {
		fmt.Fprintf(t, "domain %s has no rules\n", printable(x.Domain))
	} else {
		fmt.Fprintf(t, "domain %s at %s\n", printable(x.Domain), x.At)
	}
	for i := range x.Descriptors {
		writeDescriptor(t, &x.Descriptors[i])
	}
	fmt.Fprintln(t)
	if x.Failure != "" {
		fmt.Fprintf(t, "the store could not be asked: %s\n", x.Failure)
	}
	fmt.Fprintf(t, "answer: %s\n", answerWords(x))
	return t.Flush()
}

func writeDescriptor(t io.Writer, d *rls.ExplainedDescriptor) {
	fmt.Fprintln(t)
	for i := range d.Levels {
		writeLevel(t, &d.Levels[i])
	}
	switch {
	case d.Overridden && d.Rule == "":
		fmt.Fprint(t, "no rule\tthe request brings its limit along\n")
	case d.Rule == "":
		fmt.Fprintf(t, "no rule\t%s\n", d.Why)
	default:
		fmt.Fprintf(t, "rule\t%s\n", d.Rule)
		if d.Override != "" {
			fmt.Fprintf(t, "override\t%s\n", d.Override)
		}
	}
	if d.Words != "" {
		fmt.Fprintf(t, "limit\t%s\n", d.Words)
	}
	if d.Overflow {
		fmt.Fprint(t, "overflow\tthe rule has too many values (max_values): this one shares a counter with others\n")
	}
	for i := range d.Limits {
		writeLimit(t, &d.Limits[i], d.Cost)
	}
}

func writeLevel(t io.Writer, l *descriptors.Level) {
	words := matchWords[l.Match] + ": " + l.Path + " at " + l.At
	if l.Match == descriptors.MatchNone {
		words = "leads nowhere"
	}
	if l.Value != l.Sent {
		words = fmt.Sprintf("made %s (%s); %s", printable(l.Value), l.Prepared, words)
	}
	fmt.Fprintf(t, "%s\t%s\n", printable(l.Key+"="+l.Sent), words)
	for _, o := range l.Others {
		fmt.Fprintf(t, "\tnot %s at %s: %s\n", o.Path, o.At, o.Why)
	}
	if l.More > 0 {
		fmt.Fprintf(t, "\tnor %d more\n", l.More)
	}
}

func writeLimit(t io.Writer, l *rls.ExplainedLimit, cost int64) {
	fmt.Fprintf(t, "limit\t%s\n", l.Words)
	if l.Skipped != "" {
		fmt.Fprintf(t, "\tnot asked: %s\n", l.Skipped)
		return
	}
	fmt.Fprintf(t, "counter\t%s\n", printable(l.Counter))
	switch l.Decided {
	case rls.DecidedByNobody:
		fmt.Fprint(t, "left\tnot known\n")
		return
	case rls.DecidedLocally:
		fmt.Fprintf(t, "left\t%d of this replica's share, since the store is away\n", l.Left)
	default:
		fmt.Fprintf(t, "left\t%d of %d%s\n", l.Left, l.Most, within(", reset in ", l.ResetAfter))
	}
	verdict := fmt.Sprintf("passes, %d left after it", max(l.LeftAfter, 0))
	if !l.Allowed {
		verdict = "is over the limit" + within(", retry after ", l.RetryAfter)
	}
	fmt.Fprintf(t, "a cost of %d\t%s\n", cost, verdict)
}

// within is so many seconds, rounded up, or nothing.
func within(words string, seconds float64) string {
	if seconds <= 0 {
		return ""
	}
	d := time.Duration(seconds * float64(time.Second))
	return words + (d + time.Second - 1).Truncate(time.Second).String()
}

// answerWords say what the request would be answered.
func answerWords(x *rls.Explanation) string {
	words := fmt.Sprintf("%s, decided in %s", x.Answer, counted(x.Places, "part"))
	switch {
	case x.Answer == "":
		words = "OK while there is room, which only the store knows: --redis or --from"
	case x.Answer == answerError:
		words = "none: Envoy's failure_mode_deny decides"
	case x.Places == 0:
		words = x.Answer + ", since no limit applies"
	}
	return words + "; nothing was charged"
}

// printable is text as it is, or quoted where it holds what can't be printed.
func printable(text string) string {
	if text == "" || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }) {
		return strconv.Quote(text)
	}
	return text
}
