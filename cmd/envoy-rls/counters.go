package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/envoy-rls/envoy-rls/pkg/admin"
)

// countersCommand is about what has been counted.
type countersCommand struct {
	List  countersListCommand  `cmd:"" help:"List counters of a domain."`
	Get   countersGetCommand   `cmd:"" help:"Show the counters of a descriptor."`
	Reset countersResetCommand `cmd:"" help:"Forget what is counted: for a descriptor, a rule, or descriptors with an entry."`
	Give  countersGiveCommand  `cmd:"" help:"Give hits back to a descriptor."`
}

// counterChoice chooses counters of a domain by rule and entries.
type counterChoice struct {
	Domain string   `required:"" help:"The domain, as Envoy's filter has it."`
	Rule   string   `placeholder:"PATH" help:"Only those of this rule, or of this limit of one."`
	Match  []string `sep:"none" placeholder:"KEY=VALUE" help:"Only those of descriptors with this entry; may be given again."`
}

type countersListCommand struct {
	counterChoice

	Max  positive `default:"100" placeholder:"N" help:"At most so many, up to 1000."`
	JSON bool     `name:"json" help:"Print JSON."`

	fleet `set:"patience=70s"`
}

// Help is the end of counters list --help.
func (countersListCommand) Help() string {
	return `Examples:
  envoy-rls counters list --domain shop
  envoy-rls counters list --domain shop --rule shop.user --match user=ann
  envoy-rls counters list --domain shop --fleet envoy-rls-headless:6070    in memory, those of each replica` + fleetHelp
}

// Run implements the command.
func (c *countersListCommand) Run(s streams) error {
	query := url.Values{"domain": {c.Domain}, "match": c.Match, "max": {strconv.Itoa(int(c.Max))}}
	if c.Rule != "" {
		query.Set("rule", c.Rule)
	}
	return c.showCounters(s, "counters?"+query.Encode(), c.JSON)
}

// fleetHelp is the end of the help of commands that ask one replica of each store.
const fleetHelp = `

With --fleet, replicas over one Redis are asked through one of them: they have the same counters. What replicas in
memory have is each one's own. If one does not answer, the exit status is 1.`

// storeCounters are counters of one store, as one of its replicas tells them.
type storeCounters struct {
	Replica string `json:"replica,omitempty"`
	admin.CounterList
}

// countersOfAll is what commands about counters print as JSON.
type countersOfAll struct {
	Stores []storeCounters `json:"stores"`
}

// showCounters prints what GET of a call answers, for each store.
func (f *fleet) showCounters(s streams, call string, inJSON bool) error {
	ctx := context.Background()
	bases, lost, err := f.stores(ctx)
	if err != nil {
		return err
	}
	replies := append(f.askEach(ctx, bases, adminRequest{method: http.MethodGet, path: admin.Root + call}), lost...)
	var stores []storeCounters
	for i := range replies {
		own := storeCounters{Replica: replies[i].Replica}
		if replies[i].read(&own.CounterList) {
			stores = append(stores, own)
		}
	}
	if f.complain(s, replies) < len(replies) {
		err = exitCode(exitError)
	}
	if len(stores) == 0 {
		return err
	}
	return cmp.Or(printCounters(s, stores, inJSON), err)
}

// printCounters prints the counters of stores, and of which they are if there are several.
func printCounters(s streams, stores []storeCounters, inJSON bool) error {
	if inJSON {
		return writeIndented(s.out, countersOfAll{stores})
	}
	number := func(n *int64, text func(int64) string) string {
		if n == nil {
			return ""
		}
		return text(*n)
	}
	decimal := func(n int64) string { return strconv.FormatInt(n, 10) }
	var rows [][]string
	more := false
	for _, store := range stores {
		more = more || store.More
		for _, c := range store.Counters {
			rows = append(rows, []string{
				c.Descriptor, c.Rule, c.Limit, number(c.Used, decimal), number(c.Left, decimal), number(c.Reset, inSeconds), store.Replica,
			})
		}
	}
	if len(rows) == 0 {
		fmt.Fprintln(s.out, "no counters")
		return nil
	}
	slices.SortStableFunc(rows, func(a, b []string) int { return slices.Compare(a[:3], b[:3]) })
	rows = slices.Insert(rows, 0, []string{"DESCRIPTOR", "RULE", "LIMIT", "USED", "LEFT", "RESET", "REPLICA"})
	if len(stores) == 1 {
		for i, row := range rows {
			rows[i] = row[:len(row)-1]
		}
	}
	if err := printTable(s.out, rows); err != nil {
		return err
	}
	if more {
		fmt.Fprintln(s.out, "there are more; narrow it by --rule or --match, or raise --max")
	}
	return nil
}

type countersGetCommand struct {
	Domain  string   `required:"" help:"The domain, as Envoy's filter has it."`
	Entries []string `arg:"" name:"key=value" help:"The entries of a descriptor, in order."`
	JSON    bool     `name:"json" help:"Print JSON."`

	fleet `set:"patience=70s"`
}

// Help is the end of counters get --help.
func (countersGetCommand) Help() string {
	return `Examples:
  envoy-rls counters get --domain shop user=ann
  envoy-rls counters get --domain shop tenant=acme user=ann` + fleetHelp
}

// Run implements the command.
func (c *countersGetCommand) Run(s streams) error {
	if _, err := sentEntries(c.Entries); err != nil {
		s.complain(err)
		return exitCode(exitUsage)
	}
	query := url.Values{"domain": {c.Domain}, "entry": c.Entries}
	return c.showCounters(s, "counter?"+query.Encode(), c.JSON)
}

type countersResetCommand struct {
	counterChoice

	Entries []string `arg:"" optional:"" name:"key=value" help:"The entries of one descriptor, in order."`
	Yes     bool     `short:"y" help:"Don't ask."`

	fleet `set:"patience=70s"`
}

// Help is the end of counters reset --help.
func (countersResetCommand) Help() string {
	return `Examples:
  envoy-rls counters reset --domain shop user=ann             one descriptor
  envoy-rls counters reset --domain shop --rule shop.user     all values of a rule
  envoy-rls counters reset --domain shop --match tenant=acme  all descriptors with this entry

What a rule's counters are is told by their names. Those that are hashed, since they were too long, are reset by their
descriptor only.` + fleetHelp
}

// Run implements the command.
func (c *countersResetCommand) Run(s streams) error {
	descriptor, err := sentEntries(c.Entries)
	if err != nil {
		s.complain(err)
		return exitCode(exitUsage)
	}
	match, err := sentEntries(c.Match)
	if err != nil {
		s.complain(fmt.Errorf("--match: %w", err))
		return exitCode(exitUsage)
	}
	ctx := context.Background()
	bases, lost, err := c.stores(ctx)
	if err != nil {
		return err
	}
	c.complain(s, lost)
	body := admin.NewReset{Choice: admin.Choice{Domain: c.Domain, Descriptor: descriptor, Rule: c.Rule, Match: match}, Try: !c.Yes}
	n, done := c.reset(ctx, s, bases, body)
	if body.Try && n > 0 {
		if !confirmed(s, fmt.Sprintf("reset %s?", countersOf(n, len(done)))) {
			fmt.Fprintln(s.err, "envoy-rls: nothing was reset; say yes, or --yes")
			return exitCode(exitError)
		}
		body.Try = false
		n, done = c.reset(ctx, s, done, body)
	}
	if len(done) > 0 {
		fmt.Fprintf(s.out, "%s reset, and honoured by all replicas within 2s\n", countersOf(n, len(done)))
	}
	if len(done) < len(bases)+len(lost) {
		return exitCode(exitError)
	}
	return nil
}

// countersOf are n counters of some stores, in words.
func countersOf(n, stores int) string {
	if stores < 2 {
		return counted(n, "counter")
	}
	return counted(n, "counter") + " of " + counted(stores, "store")
}

// reset asks replicas for a reset, and returns how many counters that was, and which of them did it.
func (f *fleet) reset(ctx context.Context, s streams, bases []string, body admin.NewReset) (n int, done []string) {
	replies := f.askEach(ctx, bases, adminRequest{http.MethodPost, admin.Root + "counters/reset", body})
	for i := range replies {
		var answer admin.Reset
		if replies[i].read(&answer) {
			n, done = n+answer.Counters, append(done, bases[i])
		}
	}
	f.complain(s, replies)
	return n, done
}

// confirmed asks on the terminal.
func confirmed(s streams, question string) bool {
	fmt.Fprintf(s.err, "%s [y/N] ", question)
	line, _ := bufio.NewReader(os.Stdin).ReadString('\n') // nothing is a no
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return true
	}
	return false
}

type countersGiveCommand struct {
	Domain  string   `required:"" help:"The domain, as Envoy's filter has it."`
	Hits    int64    `required:"" placeholder:"N" help:"How many; no counter gets more than it has counted."`
	Entries []string `arg:"" name:"key=value" help:"The entries of a descriptor, in order."`
	JSON    bool     `name:"json" help:"Print JSON."`

	adminClient `set:"patience=70s"`
}

// Help is the end of counters give --help.
func (countersGiveCommand) Help() string {
	return `Examples:
  envoy-rls counters give --domain shop --hits 10 user=ann`
}

// Run implements the command.
func (c *countersGiveCommand) Run(s streams) error {
	descriptor, err := sentEntries(c.Entries)
	if err != nil {
		s.complain(err)
		return exitCode(exitUsage)
	}
	var given storeCounters
	body := admin.Gift{Domain: c.Domain, Descriptor: descriptor, Hits: c.Hits}
	if err := c.call(adminRequest{http.MethodPost, admin.Root + "counters/give", body}, &given.CounterList); err != nil {
		return err
	}
	return printCounters(s, []storeCounters{given}, c.JSON)
}
