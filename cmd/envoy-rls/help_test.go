package main

import (
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// leaves are the commands that can be run, each with the commands before it.
func leaves(n *kong.Node, path string) map[string]*kong.Node {
	all := map[string]*kong.Node{}
	for _, child := range n.Children {
		own := strings.TrimSpace(path + " " + child.Name)
		if child.Leaf() {
			all[own] = child
		}
		for name, leaf := range leaves(child, own) {
			all[name] = leaf
		}
	}
	return all
}

func parserForTests(t *testing.T) (*kong.Kong, *settingProblems) {
	t.Helper()
	problems := &settingProblems{}
	k, err := newParser(&commandLine{}, false, problems, kong.Writers(io.Discard, io.Discard), kong.Exit(func(int) {}))
	if err != nil {
		t.Fatal(err)
	}
	return k, problems
}

// exampleLine is a command line in a help text: from the program's name to what is said of it, or what else the shell does.
var exampleLine = regexp.MustCompile(`envoy-rls( [^ |>)#]+( [^ |>)#]+)*)?`)

// TestEveryCommandHasExamplesThatWork reads the help of all commands that there are, and parses each of its examples.
func TestEveryCommandHasExamplesThatWork(t *testing.T) {
	k, _ := parserForTests(t)
	all := leaves(k.Model.Node, "")
	const few = 6
	if len(all) < few {
		t.Fatalf("there are %d commands", len(all))
	}
	for name, leaf := range all {
		_, examples, found := strings.Cut(leaf.Detail, "Example")
		if !found {
			t.Errorf("%s --help has no examples", name)
			continue
		}
		examples, _, _ = strings.Cut(examples, "\n\n")
		own := 0
		for _, line := range strings.Split(examples, "\n")[1:] {
			command := exampleLine.FindString(line)
			if strings.HasPrefix(command, "envoy-rls "+name) {
				own++
			}
			k, problems := parserForTests(t)
			ctx, err := k.Parse(strings.Fields(command)[1:])
			if err != nil {
				t.Errorf("%s --help: %s: %v", name, command, err)
				continue
			}
			for _, wrong := range problems.list(ctx) {
				t.Errorf("%s --help: %s: %v", name, command, wrong)
			}
		}
		if own == 0 {
			t.Errorf("%s --help has no example of itself", name)
		}
	}
}
