package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

// explainedByAll is the output of explain --fleet --json: what replicas say of a request.
type explainedByAll struct {
	// Differ tells that they don't say the same, but for counts.
	Differ   bool               `json:"differ"`
	Replicas []explainedReplica `json:"replicas"`
}

// explainedReplica is what one says, or why it says nothing.
type explainedReplica struct {
	Replica     string           `json:"replica"`
	Error       string           `json:"error,omitempty"`
	Explanation *rls.Explanation `json:"explanation,omitempty"`
}

// explainByAll has all replicas explain a request.
func (c *explainCommand) explainByAll(s streams, req *ratelimit.RateLimitRequest) error {
	ask, err := explainRequest(req)
	f := fleet{adminClient{Timeout: duration(explainPatience)}, c.Fleet}
	var replies []adminReply
	if err == nil {
		replies, err = f.ask(context.Background(), ask)
	}
	if err != nil {
		s.complain(err)
		return exitCode(exitUsage)
	}
	all := newExplainedByAll(replies)
	f.complain(s, replies)
	if c.JSON {
		err = writeIndented(s.out, all)
	} else {
		_, err = fmt.Fprint(s.out, all.text())
	}
	return cmp.Or(err, all.exit())
}

// newExplainedByAll reads replies, and notes in them what can't be read.
func newExplainedByAll(replies []adminReply) *explainedByAll {
	all := &explainedByAll{Replicas: make([]explainedReplica, len(replies))}
	for i := range replies {
		r, own := &replies[i], &all.Replicas[i]
		own.Replica = r.Replica
		x := &rls.Explanation{}
		if r.read(x) {
			own.Explanation = x
		}
		if x.Answer == answerError {
			r.Err = refusal("asking the store: " + readable(x.Failure))
		}
		if r.Err != nil {
			own.Error = r.Err.Error()
		}
	}
	all.Differ = len(all.verdicts()) > 1
	return all
}

// verdicts are replicas that say the same, together.
func (a *explainedByAll) verdicts() (groups [][]explainedReplica) {
	known := map[string]int{}
	for _, r := range a.Replicas {
		if r.Explanation == nil {
			continue
		}
		v := verdict(r.Explanation)
		i, is := known[v]
		if !is {
			i = len(groups)
			known[v], groups = i, append(groups, nil)
		}
		groups[i] = append(groups[i], r)
	}
	return groups
}

// verdict is what an explanation says, but for counts: they go on between two answers.
func verdict(x *rls.Explanation) string {
	plain := *x
	plain.Descriptors = slices.Clone(x.Descriptors)
	for i := range plain.Descriptors {
		d := &plain.Descriptors[i]
		d.Limits = slices.Clone(d.Limits)
		for n := range d.Limits {
			l := &d.Limits[n]
			l.Left, l.LeftAfter, l.ResetAfter, l.RetryAfter = 0, 0, 0, 0
		}
	}
	text, _ := json.Marshal(plain) // it was read from JSON
	return string(text)
}

// text is what replicas say, for people: each one's answer in a line, and then each different explanation once.
func (a *explainedByAll) text() string {
	groups := a.verdicts()
	if len(groups) == 0 {
		return ""
	}
	b := &strings.Builder{}
	rows := [][]string{{"REPLICA", "ANSWER", "RULE", "LEFT"}}
	for _, r := range a.Replicas {
		if r.Explanation != nil {
			rows = append(rows, []string{r.Replica, r.Explanation.Answer, rulesOf(r.Explanation), leastLeft(r.Explanation)})
		}
	}
	_ = printTable(b, rows) // a Builder takes all
	if a.Differ {
		fmt.Fprint(b, "what replicas say differs\n")
	}
	for _, g := range groups {
		fmt.Fprintln(b)
		if a.Differ {
			names := make([]string, len(g))
			for i := range g {
				names[i] = g[i].Replica
			}
			fmt.Fprintf(b, "%s:\n", strings.Join(names, ", "))
		}
		_ = writeExplanation(b, g[0].Explanation) // a Builder takes all
	}
	return readable(b.String())
}

// rulesOf are the rules that match, one for each descriptor.
func rulesOf(x *rls.Explanation) string {
	list := make([]string, len(x.Descriptors))
	for i := range x.Descriptors {
		list[i] = cmp.Or(x.Descriptors[i].Rule, "-")
	}
	return strings.Join(list, ", ")
}

// leastLeft is what the limit has left that has least, or "" where no count is known.
func leastLeft(x *rls.Explanation) (text string) {
	var least int64
	for i := range x.Descriptors {
		for _, l := range x.Descriptors[i].Limits {
			known := l.Skipped == "" && l.Decided != rls.DecidedByNobody
			if known && (text == "" || l.Left < least) {
				least, text = l.Left, strconv.FormatInt(l.Left, 10)
			}
		}
	}
	return text
}

// exit is the exit status as an error, or nil: the worst that a replica's answer comes to.
func (a *explainedByAll) exit() error {
	worst := []exitCode{exitNoMatch, exitError, exitUsage}
	at := -1
	for i := range a.Replicas {
		var own exitCode
		switch r := &a.Replicas[i]; {
		case r.Error != "":
			own = exitUsage
		case !errors.As(explainedExit(r.Explanation), &own):
			continue
		}
		at = max(at, slices.Index(worst, own))
	}
	if at < 0 {
		return nil
	}
	return worst[at]
}
