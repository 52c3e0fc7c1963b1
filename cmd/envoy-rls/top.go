package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"time"
)

// topCommand shows what /top of replicas tells.
type topCommand struct {
	fleet    `set:"patience=2s"`
	Interval duration `default:"2s" help:"How often it is shown anew."`
	Rows     topRows  `default:"10" help:"How many of each kind, at most 200."`
	Once     bool     `help:"Show it once."`
	JSON     bool     `name:"json" help:"Show it once, in JSON."`
}

// Help is the end of top --help.
func (topCommand) Help() string {
	return `Examples:
  envoy-rls top                                          of the replica on this machine, until Ctrl-C
  envoy-rls top --once --admin http://10.0.0.7:6070
  envoy-rls top --fleet envoy-rls-headless:6070          of all replicas together
  envoy-rls top --json --fleet 10.0.0.7:6070,10.0.0.8:6070 | jq '.refused_values[0]'

What is shown is of the last 30 to 60 seconds. Where calls are many, counts are estimates.

Exit status: 0 every replica answered, 1 some did not, 2 none did.`
}

// shortestInterval keeps replicas from being asked as often as they can answer.
const shortestInterval = 10 * time.Millisecond

type topRows int

// UnmarshalText implements encoding.TextUnmarshaler.
func (n *topRows) UnmarshalText(text []byte) error {
	if (*count)(n).UnmarshalText(text) != nil || *n < 1 || *n > mostTopRows {
		return fmt.Errorf("want a number from 1 to %d", mostTopRows)
	}
	return nil
}

// Run implements the command.
func (c *topCommand) Run(s streams) error {
	if time.Duration(c.Interval) < shortestInterval {
		s.complain(fmt.Errorf("--interval is %s: want %s or more", time.Duration(c.Interval), shortestInterval))
		return exitCode(exitUsage)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	screen := newScreen(s.out)
	for {
		seen, err := c.look(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			s.complain(err)
			return exitCode(exitUsage)
		case c.JSON:
			return cmp.Or(writeIndented(s.out, seen), seen.exit())
		case c.Once:
			_, err := fmt.Fprint(s.out, seen.table())
			return cmp.Or(err, seen.exit())
		}
		if err := screen.show(seen.table()); err != nil {
			return err
		}
		select {
		case <-time.After(time.Duration(c.Interval)):
		case <-ctx.Done():
			return nil
		}
	}
}

// look asks the replicas, and puts together what they answer.
func (c *topCommand) look(ctx context.Context) (*topOfAll, error) {
	// What is first of all may be far down on each.
	replies, err := c.ask(ctx, adminRequest{method: http.MethodGet, path: fmt.Sprintf("/top?rows=%d", mostTopRows)})
	if err != nil {
		return nil, err
	}
	all := &topOfAll{}
	for i := range replies {
		all.add(&replies[i])
	}
	for _, list := range []*[]topRow{&all.Rules, &all.Values, &all.Counters} {
		slices.SortStableFunc(*list, func(a, b topRow) int {
			return cmp.Or(cmp.Compare(b.PerSecond, a.PerSecond), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Descriptor, b.Descriptor))
		})
		*list = (*list)[:min(len(*list), int(c.Rows))]
	}
	return all, nil
}

// topOfAll is the output of top --json: what several replicas saw together.
type topOfAll struct {
	Replicas []topReplica `json:"replicas"`
	Calls    float64      `json:"calls_per_second"`
	Refused  float64      `json:"refused_per_second"`
	Rules    []topRow     `json:"refused_rules"`
	Values   []topRow     `json:"refused_values"`
	Counters []topRow     `json:"hottest_counters"`
}

// topReplica is a replica in it: what it alone saw, or why it did not answer.
type topReplica struct {
	Replica   string    `json:"replica"`
	Error     string    `json:"error,omitempty"`
	RulesHash string    `json:"rules_hash,omitempty"`
	Seconds   float64   `json:"seconds,omitempty"`
	Calls     float64   `json:"calls_per_second"`
	Refused   float64   `json:"refused_per_second"`
	ValuesKey string    `json:"values_key,omitempty"`
	Store     *topStore `json:"store,omitempty"`
}

func (t *topOfAll) add(r *adminReply) {
	var p topPage
	if !r.read(&p) {
		t.Replicas = append(t.Replicas, topReplica{Replica: r.Replica, Error: r.Err.Error()})
		return
	}
	t.Replicas = append(t.Replicas, topReplica{
		Replica: r.Replica, RulesHash: p.RulesHash, Seconds: p.Seconds, Calls: p.Calls, Refused: p.Refused, ValuesKey: p.ValuesKey,
		Store: &p.Store,
	})
	t.Calls, t.Refused = t.Calls+p.Calls, t.Refused+p.Refused
	t.Rules, t.Values, t.Counters = addRows(t.Rules, p.Rules), addRows(t.Values, p.Values), addRows(t.Counters, p.Counters)
}

// addRows adds up what is the same.
func addRows(sum, rows []topRow) []topRow {
	for _, r := range rows {
		same := slices.IndexFunc(sum, func(s topRow) bool {
			return s.Rule == r.Rule && s.Descriptor == r.Descriptor && s.Tried == r.Tried
		})
		if same < 0 {
			sum = append(sum, r)
			continue
		}
		sum[same].Count += r.Count
		sum[same].PerSecond += r.PerSecond
	}
	return sum
}

// answered is how many replicas did.
func (t *topOfAll) answered() (n int) {
	for i := range t.Replicas {
		if t.Replicas[i].Error == "" {
			n++
		}
	}
	return n
}

// exit is the exit status as an error, or nil.
func (t *topOfAll) exit() error { return exitOfFleet(t.answered(), len(t.Replicas)) }
