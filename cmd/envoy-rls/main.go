// Command envoy-rls is a rate limit service for Envoy.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// The exit codes.
const (
	exitOK    = 0
	exitError = 1
	exitUsage = 2
)

// compatName is the service whose place this one can take, and the value of --compat.
const compatName = "envoyproxy-ratelimit"

// commandLine is everything that can be asked of the program.
type commandLine struct {
	ShowVersion kong.VersionFlag `name:"version" help:"Print the version."`

	Serve     serveCommand     `cmd:"" help:"Run the service. Without flags: in memory, with the rules in ./config."`
	Check     checkCommand     `cmd:"" help:"Check rules, and say in words what they do."`
	Convert   convertCommand   `cmd:"" help:"Write rules for envoyproxy/ratelimit, as near as it can: the way back."`
	Simulate  simulateCommand  `cmd:"" help:"Say what rules, or a change of them, would have refused of an access log."`
	Call      callCommand      `cmd:"" help:"Ask a running service what Envoy would ask, and print its answer in words."`
	Explain   explainCommand   `cmd:"" help:"Say which rules match a request, and why the others don't."`
	Top       topCommand       `cmd:"" help:"Show who is refused most, and what is counted most, by one replica or all."`
	Unmatched unmatchedCommand `cmd:"" help:"List what no rule matches, and the nearest rule, by one replica or all."`
	Override  overrideCommand  `cmd:"" help:"Put something else in a rule's place for a while, without a change of rules."`
	Counters  countersCommand  `cmd:"" help:"Look at what a running service has counted, reset it, or give hits back."`
	Version   versionCommand   `cmd:"" help:"Print the version."`

	Completion completionCommand `cmd:"" help:"Print what makes a shell complete command lines of this program."`
}

// streams are where a command writes.
type streams struct {
	out, err io.Writer
}

func main() {
	os.Exit(run(os.Args, streams{os.Stdout, os.Stderr}))
}

// exitCode is an error that is an exit code and has been told of.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit %d", int(e)) }

// run is the program: args are its name and arguments. Under the name ratelimit it is "serve" in compat mode.
func run(args []string, s streams) int {
	name, args := filepath.Base(args[0]), args[1:]
	compat := name == "ratelimit" || wantsCompat(args)
	if name == "ratelimit" {
		args = compatArguments(args, s.err)
	}
	var problems settingProblems
	var c commandLine
	var exit *int // set by kong when it has printed help
	parser, err := newParser(&c, compat, &problems, kong.Writers(s.out, s.err), kong.Exit(func(code int) { exit = &code }))
	if err != nil {
		s.complain(err)
		return exitError
	}
	ctx, err := parser.Parse(args)
	switch {
	case exit != nil:
		return *exit
	case err != nil:
		fmt.Fprintf(s.err, "envoy-rls: %s\n%s --help lists what there is\n", err, subject(err))
		return exitUsage
	}
	wrong := problems.list(ctx)
	if ctx.Command() == "serve" {
		wrong = append(wrong, c.Serve.check()...)
	}
	if len(wrong) > 0 {
		s.complain(errors.Join(wrong...))
		return exitUsage
	}
	return s.exitCode(ctx.Run(s))
}

// newParser reads command lines into c, and what is wrong with values into problems.
func newParser(c *commandLine, compat bool, problems *settingProblems, options ...kong.Option) (*kong.Kong, error) {
	return kong.New(c, append(options,
		kong.Name("envoy-rls"),
		kong.Description("A rate limit service for Envoy, Istio, Envoy Gateway and Contour."),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		settingDefaults(compat),
		kong.Vars{"version": builtFrom().String()},
		problems.mappers(),
		kong.WithHyphenPrefixedParameters(true), // --hits -1
		kong.PostBuild(hideSettings),
	)...)
}

// subject is the program and the command that a wrong command line is about.
func subject(err error) string {
	var wrong *kong.ParseError
	if errors.As(err, &wrong) && wrong.Context != nil && wrong.Context.Selected() != nil {
		return wrong.Context.Selected().FullPath()
	}
	return "envoy-rls"
}

// exitCode is the exit code for a command's error, which it tells of if the command hasn't.
func (s streams) exitCode(err error) int {
	var exit exitCode
	switch {
	case errors.As(err, &exit):
		return int(exit)
	case err != nil:
		s.complain(err)
		return exitError
	}
	return exitOK
}

// complain prints an error, a line for each that it joins.
func (s streams) complain(err error) {
	for _, line := range strings.Split(err.Error(), "\n") {
		fmt.Fprintf(s.err, "envoy-rls: %s\n", onTerminal(line))
	}
}

// wantsCompat finds out before the command line is parsed, since the answer chooses its defaults.
func wantsCompat(args []string) bool {
	value := os.Getenv("COMPAT")
	for i, a := range args {
		if a == "--compat" && i+1 < len(args) {
			value = args[i+1]
		} else if rest, ok := strings.CutPrefix(a, "--compat="); ok {
			value = rest
		}
	}
	return value == compatName
}

// compatArguments are those of the replaced service, which takes none and minds none.
func compatArguments(args []string, err io.Writer) []string {
	if slices.Contains(args, "--help") || slices.Contains(args, "-h") {
		return []string{"serve", "--help"}
	}
	if len(args) > 0 {
		fmt.Fprintf(err, "ratelimit: warning: arguments are not used under this name: %q\n", args)
	}
	return []string{"serve", "--compat=" + compatName}
}
