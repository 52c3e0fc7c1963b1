package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/admin"
	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
)

// overrideCommand is about overrides of rules, which are for a while and for all replicas.
type overrideCommand struct {
	Set   overrideSetCommand   `cmd:"" help:"Put something else in a rule's place for a while, on all replicas."`
	List  overrideListCommand  `cmd:"" help:"List the overrides that are active."`
	Unset overrideUnsetCommand `cmd:"" help:"End overrides before their time."`
}

const overridesPath = admin.Root + "overrides"

type overrideSetCommand struct {
	Domain    string   `required:"" help:"The domain, as Envoy's filter has it."`
	Rule      string   `required:"" placeholder:"PATH" help:"The path of a rule, or of one of its limits, as metrics and check name it."`
	Match     []string `sep:"none" placeholder:"KEY=VALUE" help:"Only for descriptors with this entry; may be given again."`
	Shadow    bool     `help:"Count, and refuse nothing."`
	Unlimited bool     `help:"Count nothing, and refuse nothing."`
	Deny      bool     `help:"Refuse everything."`
	Limit     string   `placeholder:"N/UNIT" help:"Have another limit, such as 500/second or 5/15minute."`
	For       duration `required:"" help:"How long, such as 1h; at most 24h."`
	Reason    string   `help:"Why, for the log and the list."`
	JSON      bool     `name:"json" help:"Print JSON."`

	adminClient `set:"patience=70s"`
}

// Help is the end of override set --help.
func (overrideSetCommand) Help() string {
	return `Examples:
  envoy-rls override set --domain shop --rule shop.user --shadow --for 1h --reason INC-123
  envoy-rls override set --domain shop --rule shop.tenant --match tenant=acme --limit 500/second --for 30m
  envoy-rls override set --domain shop --rule shop.address --match address=192.0.2.7 --deny --for 24h

It is in force everywhere within 2 seconds, and ends by itself. A second one for the same rule and match takes its place.`
}

// Run implements the command.
func (c *overrideSetCommand) Run(s streams) error {
	kind, err := c.kind()
	if err != nil {
		s.complain(err)
		return exitCode(exitUsage)
	}
	match, err := sentEntries(c.Match)
	if err != nil {
		s.complain(fmt.Errorf("--match: %w", err))
		return exitCode(exitUsage)
	}
	var set admin.Override
	err = c.call(adminRequest{http.MethodPost, overridesPath, admin.NewOverride{
		Domain: c.Domain, Rule: c.Rule, Match: match, Kind: string(kind), Limit: c.Limit, For: time.Duration(c.For).String(), Reason: c.Reason,
	}}, &set)
	if err != nil {
		return err
	}
	if c.JSON {
		return writeIndented(s.out, set)
	}
	fmt.Fprintf(s.out, "override %s: %s for %s, on all replicas within 2s\n", onTerminal(set.ID), onTerminal(set.Does), inSeconds(set.Seconds))
	return nil
}

// kind is the one that was asked for.
func (c *overrideSetCommand) kind() (kind descriptors.OverrideKind, err error) {
	given := 0
	for k, is := range map[descriptors.OverrideKind]bool{
		descriptors.OverrideShadow: c.Shadow, descriptors.OverrideUnlimited: c.Unlimited,
		descriptors.OverrideDeny: c.Deny, descriptors.OverrideLimit: c.Limit != "",
	} {
		if is {
			kind = k
			given++
		}
	}
	if given != 1 {
		return "", errors.New("give one of --shadow, --unlimited, --deny and --limit")
	}
	return kind, nil
}

type overrideListCommand struct {
	JSON bool `name:"json" help:"Print JSON."`

	adminClient `set:"patience=70s"`
}

// Help is the end of override list --help.
func (overrideListCommand) Help() string {
	return `Examples:
  envoy-rls override list
  envoy-rls override list --admin http://10.0.0.7:6070
  envoy-rls override list --json | jq -r '.overrides[].id'`
}

// Run implements the command.
func (c *overrideListCommand) Run(s streams) error {
	var answer admin.Overrides
	if err := c.call(adminRequest{method: http.MethodGet, path: overridesPath}, &answer); err != nil {
		return err
	}
	if c.JSON {
		return writeIndented(s.out, answer)
	}
	if len(answer.Overrides) == 0 {
		fmt.Fprintln(s.out, "no overrides")
		return nil
	}
	rows := [][]string{{"ID", "RULE", "MATCH", "DOES", "LEFT", "BY", "REASON"}}
	for _, o := range answer.Overrides {
		does := o.Does
		if o.Problem != "" {
			does = "nothing: " + o.Problem
		}
		rows = append(rows, []string{o.ID, o.Rule, o.Match, does, inSeconds(o.Seconds), o.By, o.Reason})
	}
	return printTable(s.out, rows)
}

type overrideUnsetCommand struct {
	IDs []string `arg:"" name:"id" help:"As override list has it."`

	adminClient `set:"patience=70s"`
}

// Help is the end of override unset --help.
func (overrideUnsetCommand) Help() string {
	return `Examples:
  envoy-rls override unset 1a2b3c4d`
}

// Run implements the command. It ends what it can.
func (c *overrideUnsetCommand) Run(s streams) error {
	var errs []error
	for _, id := range c.IDs {
		if err := c.call(adminRequest{method: http.MethodDelete, path: overridesPath + "/" + url.PathEscape(id)}, nil); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", id, err))
			continue
		}
		fmt.Fprintf(s.out, "override %s has ended, on all replicas within 2s\n", id)
	}
	return errors.Join(errs...)
}
