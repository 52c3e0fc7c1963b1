package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// unmatchedCommand shows what /unmatched of replicas tells.
type unmatchedCommand struct {
	fleet `set:"patience=2s"`
	JSON  bool `name:"json" help:"Print JSON."`
}

// Help is the end of unmatched --help.
func (unmatchedCommand) Help() string {
	return `Examples:
  envoy-rls unmatched                                    of the replica on this machine
  envoy-rls unmatched --fleet envoy-rls-headless:6070    of all replicas together
  envoy-rls unmatched --json --fleet 10.0.0.7:6070,10.0.0.8:6070 | jq '.shapes[0]'

Exit status: 0 every replica answered, 1 some did not, 2 none did.`
}

// unmatchedOfAll is the output of unmatched --json: what no rule of some replicas matched.
type unmatchedOfAll struct {
	Replicas []unmatchedReplica `json:"replicas"`
	unmatchedPage
}

// unmatchedReplica is a replica that was asked, and why it did not answer.
type unmatchedReplica struct {
	Replica string `json:"replica"`
	Error   string `json:"error,omitempty"`
}

// Run implements the command.
func (c *unmatchedCommand) Run(s streams) error {
	replies, err := c.ask(context.Background(), adminRequest{method: http.MethodGet, path: "/unmatched"})
	if err != nil {
		s.complain(err)
		return exitCode(exitUsage)
	}
	all := newUnmatchedOfAll(replies)
	answered := c.complain(s, replies)
	switch {
	case c.JSON:
		err = writeIndented(s.out, all)
	case answered > 0:
		_, err = fmt.Fprint(s.out, all.text(time.Now()))
	}
	return cmp.Or(err, exitOfFleet(answered, len(replies)))
}

// newUnmatchedOfAll reads replies, notes in them what can't be read, and adds up what is of one shape.
func newUnmatchedOfAll(replies []adminReply) *unmatchedOfAll {
	all := &unmatchedOfAll{unmatchedPage: unmatchedPage{Shapes: []unmatchedRow{}}}
	at := map[string]int{}
	for i := range replies {
		r, page := &replies[i], unmatchedPage{}
		if !r.read(&page) {
			all.Replicas = append(all.Replicas, unmatchedReplica{r.Replica, r.Err.Error()})
			continue
		}
		all.Replicas = append(all.Replicas, unmatchedReplica{Replica: r.Replica})
		all.Forgotten, all.Uncounted = all.Forgotten+page.Forgotten, all.Uncounted+page.Uncounted
		for _, row := range page.Shapes {
			shape := fmt.Sprintf("%q %q %d", row.Domain, row.Keys, row.MoreKeys)
			n, known := at[shape]
			if !known {
				at[shape], all.Shapes = len(all.Shapes), append(all.Shapes, row)
				continue
			}
			all.Shapes[n].add(&row)
		}
	}
	slices.SortStableFunc(all.Shapes, func(a, b unmatchedRow) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Domain, b.Domain), slices.Compare(a.Keys, b.Keys))
	})
	return all
}

// add adds what another replica saw of the same shape. The words are those of whoever saw it last.
func (r *unmatchedRow) add(other *unmatchedRow) {
	r.Count += other.Count
	if other.First.Before(r.First) {
		r.First = other.First
	}
	if other.Last.After(r.Last) {
		r.Last, r.Nearest, r.Known = other.Last, other.Nearest, other.Known
	}
}

// text is what was seen, for people.
func (a *unmatchedOfAll) text(now time.Time) string {
	b := &strings.Builder{}
	_ = a.write(b, now) // a Builder takes all
	return readable(b.String())
}
