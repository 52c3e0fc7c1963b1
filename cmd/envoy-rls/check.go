package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
)

// checkCommand checks rules before they are put in force.
type checkCommand struct {
	Paths  []string    `arg:"" name:"path" help:"Rule files, directories of them, and Kubernetes ConfigMap manifests."`
	Format checkFormat `default:"text" placeholder:"FORMAT" help:"text, json, or github (annotations)."`
	FailOn severity    `default:"error" placeholder:"WHAT" help:"Exit 1 for an error, or for a warning, too."`
	Merge  bool        `name:"merge-domains" env:"MERGE_DOMAIN_CONFIG" help:"Several files may have rules for one domain."`
	For    compatMode  `placeholder:"NAME" help:"Also whether another service could read the rules: envoyproxy-ratelimit. A file that it refuses takes all of its limits away."`
}

type (
	checkFormat string
	severity    string
)

// UnmarshalText implements encoding.TextUnmarshaler.
func (f *checkFormat) UnmarshalText(text []byte) error {
	return oneOf(f, text, "text", "json", "github")
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *severity) UnmarshalText(text []byte) error { return oneOf(s, text, "error", "warning") }

// Help is the end of check --help.
func (checkCommand) Help() string {
	return `Examples:
  envoy-rls check config/                                what is wrong, else what the rules say
  kubectl get configmap rules -o yaml | envoy-rls check /dev/stdin
  envoy-rls check --fail-on=warning --format=github rules/
  envoy-rls check --for=envoyproxy-ratelimit rules/      is the way back open?

Exit status: 0 the rules can be used, 1 they can't, 2 nothing could be checked.`
}

// Run implements the command.
func (c *checkCommand) Run(s streams) error {
	read, err := descriptors.ReadFiles(c.Paths)
	if err != nil {
		s.complain(err)
		return exitCode(exitUsage)
	}
	var files []descriptors.File
	for _, f := range read {
		files = append(files, descriptors.Unpack(f)...)
	}
	options := descriptors.Options{Merge: c.Merge}
	if c.For != "" {
		options.FileOrder, options.ForReplaced, options.Defaults.CountDenied = true, true, true
	}
	rules, problems := descriptors.Compile(files, options)
	if c.For != "" {
		problems = append(problems, descriptors.OtherFiles(c.Paths)...)
	}
	if err := c.print(s, problems); err != nil {
		return err
	}
	failed := descriptors.HasErrors(problems) || len(problems) > 0 && c.FailOn == "warning"
	switch {
	case failed:
		return exitCode(exitError)
	case c.Format == "text":
		c.summary(s, rules, len(files))
	}
	return nil
}

func (c *checkCommand) print(s streams, problems []descriptors.Problem) error {
	if c.Format == "json" {
		if problems == nil {
			problems = []descriptors.Problem{}
		}
		return json.NewEncoder(s.out).Encode(problems)
	}
	for _, p := range problems {
		line := p.String()
		if c.Format == "github" {
			line = annotation(p)
		}
		if _, err := fmt.Fprintln(s.out, line); err != nil {
			return err
		}
	}
	return nil
}

// annotation is a problem as a workflow command of GitHub Actions.
func annotation(p descriptors.Problem) string {
	text := p.Text
	if p.Path != "" {
		text = p.Path + ": " + text
	}
	escape := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	return fmt.Sprintf("::%s file=%s,line=%d,col=%d::%s", p.Severity, p.File, max(p.Line, 1), max(p.Column, 1), escape.Replace(text))
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// summary says in words what the rules do.
func (c *checkCommand) summary(s streams, rules *descriptors.Ruleset, files int) {
	for _, d := range rules.Sorted() {
		for _, r := range d.Rules() {
			for _, words := range r.Words() {
				fmt.Fprintf(s.out, "%s: %s\n", r.Path, words)
			}
		}
	}
	end := ""
	if c.For != "" {
		end = ", and " + compatName + " can read them"
	}
	fmt.Fprintf(s.out, "%s, %s: good%s\n", counted(files, "file"), counted(rules.Limits, "limit"), end)
}
