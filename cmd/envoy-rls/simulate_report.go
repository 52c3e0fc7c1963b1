package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/envoy-rls/envoy-rls/internal/simulate"
	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
)

// simulationReport is what simulate tells; as JSON it has these fields. Shares are of all requests.
type simulationReport struct {
	Domain   string    `json:"domain"`
	Requests int64     `json:"requests"`
	From     time.Time `json:"from"`
	To       time.Time `json:"to"`
	Lines    *logLines `json:"lines,omitempty"`
	Rules    ruleSet   `json:"rules"`
	Against  *ruleSet  `json:"against,omitempty"`
	Changed  *changed  `json:"changed,omitempty"`
	Times    []bin     `json:"times"`

	width time.Duration
	names *valueNames
}

type logLines struct {
	All                int64    `json:"all"`
	Unreadable         int64    `json:"unreadable"`
	Reasons            []string `json:"reasons,omitempty"`
	WithoutDescriptors int64    `json:"without_descriptors"`
	Late               int64    `json:"late"`
}

type ruleSet struct {
	Paths   []string     `json:"paths"`
	Hash    string       `json:"hash"`
	Refused int64        `json:"refused"`
	Share   float64      `json:"share"`
	Failed  int64        `json:"failed"`
	Failure string       `json:"failure,omitempty"`
	Limits  []limitCount `json:"limits"`
	Values  []valueCount `json:"values"`
	// ForgottenCounters and ValuesBeyondMax tell that memory, or a rule's max_values, was too small.
	ForgottenCounters int64 `json:"forgotten_counters"`
	ValuesBeyondMax   int64 `json:"values_beyond_max"`
}

type limitCount struct {
	Limit          string `json:"limit"`
	Asked          int64  `json:"asked"`
	Refused        int64  `json:"refused"`
	OverNotRefused int64  `json:"over_not_refused"`
}

type valueCount struct {
	Limit   string `json:"limit"`
	Values  string `json:"values"`
	Refused int64  `json:"refused"`
	// AtMostTooMany is how much lower Refused may be in truth.
	AtMostTooMany int64 `json:"at_most_too_many,omitempty"`
}

// changed is how a change differs.
type changed struct {
	NewlyRefused       int64        `json:"newly_refused"`
	NewlyRefusedShare  float64      `json:"newly_refused_share"`
	NewlyRefusedValues []valueCount `json:"newly_refused_values"`
	NoLonger           int64        `json:"no_longer_refused"`
	NoLongerValues     []valueCount `json:"no_longer_refused_values"`
}

type bin struct {
	From     time.Time `json:"from"`
	Requests int64     `json:"requests"`
	Refused  int64     `json:"refused"`
	Against  *int64    `json:"refused_against,omitempty"`
}

// maxTimes bounds the times of a report.
const maxTimes = 31

func newSimulationReport(sim *simulation, r *simulate.Result) *simulationReport {
	c := sim.command
	names := &valueNames{redact: c.Redact}
	report := &simulationReport{
		Domain: sim.domain, Requests: r.Requests, From: time.UnixMicro(r.From).UTC(), To: time.UnixMicro(r.To).UTC(), names: names,
		Rules: names.ruleSet(c.Rules, sim.rules[0], &r.Sets[0], r.Requests),
	}
	if sim.log != nil {
		l := &sim.log.Lines
		report.Lines = &logLines{l.All, l.Bad, l.Shown, l.Without, l.Late}
	}
	if len(r.Sets) > 1 {
		against := names.ruleSet(c.Against, sim.rules[1], &r.Sets[1], r.Requests)
		report.Against = &against
		report.Changed = &changed{
			NewlyRefused: r.OnlySecond, NewlyRefusedShare: float64(r.OnlySecond) / float64(r.Requests), NoLonger: r.OnlyFirst,
			NewlyRefusedValues: names.counts(r.OnlySecondWho), NoLongerValues: names.counts(r.OnlyFirstWho),
		}
	}
	times := r.Timeline.Within(maxTimes)
	report.width = times.Width
	for i := range times.Bins {
		b := bin{From: times.From(i), Requests: times.Bins[i].Requests, Refused: times.Bins[i].Refused[0]}
		if len(r.Sets) > 1 {
			b.Against = &times.Bins[i].Refused[1]
		}
		report.Times = append(report.Times, b)
	}
	return report
}

// counts are how many requests there were, and how many of them --fail-over is about.
func (r *simulationReport) counts() (refused, all int64) {
	if r.Changed != nil {
		return r.Changed.NewlyRefused, r.Requests
	}
	return r.Rules.Refused, r.Requests
}

// valueNames says who was refused, or numbers them.
type valueNames struct {
	redact  bool
	numbers map[descriptors.Entry]int
}

func (n *valueNames) ruleSet(paths []string, rules *descriptors.Ruleset, s *simulate.SetResult, requests int64) ruleSet {
	set := ruleSet{
		Paths: paths, Hash: rules.Hash, Refused: s.Refused, Share: float64(s.Refused) / float64(requests), Failed: s.Failed,
		Failure: s.Failure, Limits: []limitCount{}, Values: n.counts(s.Who), ForgottenCounters: s.Forgotten, ValuesBeyondMax: s.Overflown,
	}
	for _, l := range s.Limits {
		set.Limits = append(set.Limits, limitCount{l.Path, l.Asked, l.Refused, l.Over})
	}
	return set
}

func (n *valueNames) counts(list []simulate.Refusals) []valueCount {
	counts := make([]valueCount, 0, len(list))
	for _, r := range list {
		counts = append(counts, valueCount{r.Limit, n.all(r.Values), r.Requests, r.AtMost})
	}
	return counts
}

// all is the entries on one line: user=ann, path=/.
func (n *valueNames) all(entries []descriptors.Entry) string {
	words := make([]string, len(entries))
	for i, e := range entries {
		words[i] = e.Key + "=" + n.value(e)
	}
	return strings.Join(words, ", ")
}

// value is one that a client chose: it must not be able to move a terminal's cursor.
func (n *valueNames) value(e descriptors.Entry) string {
	if !n.redact {
		if strings.ContainsFunc(e.Value, func(r rune) bool { return !unicode.IsPrint(r) }) {
			return strconv.Quote(e.Value)
		}
		return e.Value
	}
	if n.numbers == nil {
		n.numbers = map[descriptors.Entry]int{}
	}
	if n.numbers[e] == 0 {
		n.numbers[e] = len(n.numbers) + 1
	}
	return fmt.Sprint("#", n.numbers[e])
}

func (r *simulationReport) print(w io.Writer, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	var text strings.Builder
	t := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	r.head(t)
	r.limits(t)
	if r.Against == nil {
		values(t, "refused most", r.Rules.Values)
	} else {
		values(t, "newly refused", r.Changed.NewlyRefusedValues)
		values(t, "no longer refused", r.Changed.NoLongerValues)
	}
	r.times(t)
	if err := t.Flush(); err != nil {
		return err
	}
	for row := range strings.Lines(text.String()) {
		if _, err := fmt.Fprintln(w, strings.TrimRight(row, " \n")); err != nil {
			return err
		}
	}
	return nil
}

// percent is a share of requests, with as many digits as tell something.
func percent(part, of int64) string {
	share := 100 * float64(part) / float64(of)
	switch {
	case part == 0:
		return "0 %"
	case share < 0.1:
		return fmt.Sprintf("%.2g %%", share)
	}
	return fmt.Sprintf("%.1f %%", share)
}

const instantLayout = "2006-01-02 15:04:05"

func (r *simulationReport) head(w io.Writer) {
	fmt.Fprintf(w, "%s to domain %s, from %s to %s UTC\n", counted(int(r.Requests), "request"), r.Domain, r.From.Format(instantLayout), r.To.Format(instantLayout))
	if l := r.Lines; l != nil {
		note(w, l.Unreadable, "line", "can't be read: "+strings.Join(l.Reasons, "; "))
		note(w, l.WithoutDescriptors, "line", "without a value for any descriptor: nothing is asked")
		note(w, l.Late, "line", "came late: taken for what came then")
	}
	for _, s := range []*ruleSet{&r.Rules, r.Against} {
		if s == nil {
			continue
		}
		fmt.Fprintf(w, "%s: %d refused, %s\n", strings.Join(s.Paths, " "), s.Refused, percent(s.Refused, r.Requests))
		note(w, s.Failed, "request", "got no answer: "+s.Failure)
		note(w, s.ForgottenCounters, "counter", "dropped for want of memory, so that too little is refused; raise --memory-limit")
		note(w, s.ValuesBeyondMax, "descriptor", "with a value beyond its rule's max_values, which share a counter")
	}
	if c := r.Changed; c != nil {
		fmt.Fprintf(w, "the change: %d newly refused, %s, and %d no longer, %s\n",
			c.NewlyRefused, percent(c.NewlyRefused, r.Requests), c.NoLonger, percent(c.NoLonger, r.Requests))
	}
}

// note is for what is not worth a line if there is none.
func note(w io.Writer, n int64, noun, text string) {
	if n > 0 {
		fmt.Fprintf(w, "  %s %s\n", counted(int(n), noun), text)
	}
}

// limits is a line for each limit of either set, those that refuse most first.
func (r *simulationReport) limits(w io.Writer) {
	if r.Against == nil {
		fmt.Fprint(w, "\nlimit\tasked\trefused\tover, not refused\n")
		for _, l := range r.Rules.Limits {
			fmt.Fprintf(w, "%s\t%d\t%d\t%d\n", l.Limit, l.Asked, l.Refused, l.OverNotRefused)
		}
		return
	}
	fmt.Fprint(w, "\nlimit\tasked\trefused\tthen\tover, not refused\tthen\n")
	before := map[string]limitCount{}
	for _, l := range r.Rules.Limits {
		before[l.Limit] = l
	}
	for _, l := range r.Against.Limits {
		was, known := before[l.Limit]
		delete(before, l.Limit)
		fmt.Fprintf(w, "%s\t%d\t%s\t%d\t%s\t%d\n", l.Limit, l.Asked, number(was.Refused, known), l.Refused, number(was.OverNotRefused, known), l.OverNotRefused)
	}
	for _, l := range r.Rules.Limits {
		if _, gone := before[l.Limit]; gone {
			fmt.Fprintf(w, "%s\t%d\t%d\t-\t%d\t-\n", l.Limit, l.Asked, l.Refused, l.OverNotRefused)
		}
	}
}

func number(n int64, known bool) string {
	if !known {
		return "-"
	}
	return fmt.Sprint(n)
}

func values(w io.Writer, title string, list []valueCount) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s\tby\trequests\n", title)
	for _, v := range list {
		who, exact := v.Values, ""
		if who == "" {
			who = "(all together)"
		}
		if v.AtMostTooMany > 0 {
			exact = fmt.Sprintf(", up to %d too many", v.AtMostTooMany)
		}
		fmt.Fprintf(w, "%s\t%s\t%d%s\n", who, v.Limit, v.Refused, exact)
	}
}

// times is a line for each while in which something came.
func (r *simulationReport) times(w io.Writer) {
	then := ""
	if r.Against != nil {
		then = "\tthen"
	}
	fmt.Fprintf(w, "\nfrom\trequests\trefused%s\n", then)
	layout := "01-02 15:04:05"
	if r.width >= time.Minute {
		layout = "01-02 15:04"
	}
	for _, b := range r.Times {
		if b.Requests == 0 {
			continue
		}
		refused, last := percent(b.Refused, b.Requests), b.Refused
		if b.Against != nil {
			refused, last = refused+"\t"+percent(*b.Against, b.Requests), *b.Against
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\n", b.From.Format(layout), b.Requests, refused, bar(last, b.Requests))
	}
}

// bar is how much of a whole is refused.
func bar(part, of int64) string {
	const width = 30
	n := int(part * width / max(of, 1))
	if n == 0 && part > 0 {
		return "▏"
	}
	return strings.Repeat("█", n)
}
