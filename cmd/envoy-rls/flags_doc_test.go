package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// TestEveryFlagOfServeIsInTheDocuments looks for flags in the pages for users.
func TestEveryFlagOfServeIsInTheDocuments(t *testing.T) {
	var text strings.Builder
	for name, page := range documents(t) {
		if strings.HasPrefix(name, "docs/") && !strings.HasPrefix(name, "docs/decisions/") || name == "README.md" {
			text.WriteString(page)
		}
	}
	var problems settingProblems
	program := kong.Must(&commandLine{}, settingDefaults(false), problems.mappers(), kong.Vars{"version": ""})
	for _, command := range program.Model.Children {
		for _, f := range command.Flags {
			if command.Name == "serve" && !f.Hidden && !regexp.MustCompile("--"+f.Name+`(?:[^-\w]|$)`).MatchString(text.String()) {
				t.Errorf("no page has --%s: %s", f.Name, f.Help)
			}
		}
	}
}
