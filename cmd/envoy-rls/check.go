package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
)

// checkCommand checks rules before they are put in force.
type checkCommand struct {
	Paths  []string    `arg:"" name:"path" optional:"" help:"Rule files, directories of them, and Kubernetes ConfigMap manifests."`
	Format checkFormat `xor:"format" placeholder:"FORMAT" help:"text, json, or github (annotations)."` // without a default, which kong would take for one that is given
	JSON   bool        `xor:"format" name:"json" help:"The same as --format=json."`
	FailOn severity    `default:"error" placeholder:"WHAT" help:"Exit 1 for an error, or for a warning, too."`
	Merge  bool        `name:"merge-domains" env:"MERGE_DOMAIN_CONFIG" help:"Several files may have rules for one domain."`
	Envoy  []string    `sep:"none" placeholder:"FILE" help:"Compare with the rules what an Envoy sends: its bootstrap, route configuration, EnvoyFilter of Istio, or config_dump. Several files are one Envoy's."`
	Keys   keySettings `embed:"" prefix:"key-"`
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
  envoy-rls check --for=envoyproxy-ratelimit rules/      is the way back open? If not: envoy-rls convert --help
  envoy-rls check --envoy=envoy.yaml rules/              does Envoy send what the rules want?
  curl -s localhost:9901/config_dump | envoy-rls check --envoy=/dev/stdin rules/

Exit status: 0 the rules can be used, 1 they can't, 2 nothing could be checked.`
}

// format is what the flags say.
func (c *checkCommand) format() checkFormat {
	if c.JSON {
		return "json"
	}
	return cmp.Or(c.Format, "text")
}

// Run implements the command.
func (c *checkCommand) Run(s streams) error {
	c.Format = c.format()
	if len(c.Paths)+len(c.Envoy) == 0 {
		s.complain(errors.New("nothing to check; name rule files or directories, or an Envoy's configuration by --envoy"))
		return exitCode(exitUsage)
	}
	envoy, err := readEnvoy(c.Envoy)
	if err != nil {
		s.complain(err)
		return exitCode(exitUsage)
	}
	read, err := descriptors.ReadFiles(c.Paths)
	if err != nil {
		s.complain(err)
		return exitCode(exitUsage)
	}
	files := descriptors.Unpack(read...)
	options := descriptors.Options{Merge: c.Merge, ReplacedNames: c.Keys.Format == keyFormatReplaced}
	if c.For != "" {
		options.FileOrder, options.ForReplaced, options.Defaults.CountDenied = true, true, true
	}
	rules, problems := descriptors.Compile(files, options)
	if c.For != "" {
		problems = append(problems, descriptors.OtherFiles(c.Paths)...)
	}
	if len(c.Paths) > 0 && len(files)+len(problems) == 0 {
		s.complain(fmt.Errorf("nothing to check: no rule files in %s", strings.Join(c.Paths, ", ")))
		return exitCode(exitUsage)
	}
	problems = append(problems, c.compare(envoy, rules, problems)...)
	if err := c.print(s, problems); err != nil {
		return err
	}
	failed := descriptors.HasErrors(problems) || len(problems) > 0 && c.FailOn == "warning"
	switch {
	case failed:
		return exitCode(exitError)
	case c.Format == "text":
		c.summary(s, rules, len(files))
		c.sends(s, envoy)
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
		line := s.painted(severityColour(p), onTerminal(p.String()))
		if c.Format == "github" {
			line = annotation(p)
		}
		if _, err := fmt.Fprintln(s.out, line); err != nil {
			return err
		}
	}
	return nil
}

func severityColour(p descriptors.Problem) colour {
	if p.Severity == descriptors.Error {
		return red
	}
	return yellow
}

// annotation is a problem as a workflow command of GitHub Actions.
func annotation(p descriptors.Problem) string {
	text := p.Text
	if p.Path != "" {
		text = p.Path + ": " + text
	}
	property := strings.NewReplacer("%", "%25", ":", "%3A", ",", "%2C")
	message := strings.NewReplacer("%", "%25")
	return fmt.Sprintf("::%s file=%s,line=%d,col=%d::%s", p.Severity, property.Replace(onTerminal(p.File)),
		max(p.Line, 1), max(p.Column, 1), message.Replace(onTerminal(text)))
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
				fmt.Fprintln(s.out, onTerminal(r.Path+": "+words))
			}
		}
	}
	if len(c.Paths) == 0 {
		return
	}
	end := ""
	if c.For != "" {
		end = ", and " + compatName + " can read them; there, refused requests cost as well"
	}
	fmt.Fprintf(s.out, "%s, %s: %s%s\n", counted(files, "file"), counted(rules.Limits, "limit"), s.painted(green, "good"), end)
}
