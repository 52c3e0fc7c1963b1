package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
)

// build is what this program was built from.
type build struct {
	version      string // a tag, or what Go makes of a commit; "+dirty" if the sources were changed
	commit, date string // "unknown" without a repository
	goVersion    string
}

// builtFrom reads what the Go command has put into the program.
func builtFrom() build {
	b := build{goVersion: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.commit = s.Value
		case "vcs.time":
			b.date = s.Value
		}
	}
	b.version = cmp.Or(info.Main.Version, "(devel)")
	b.commit, b.date = cmp.Or(b.commit, "unknown"), cmp.Or(b.date, "unknown")
	return b
}

// String is what the command version prints.
func (b build) String() string {
	return fmt.Sprintf("envoy-rls %s\ncommit %s\ndate %s\n%s", b.version, b.commit, b.date, b.goVersion)
}

// versionCommand says what this program was built from.
type versionCommand struct {
	JSON bool `name:"json" help:"Print it as JSON."`
}

// Help is the end of version --help.
func (versionCommand) Help() string {
	return `Examples:
  envoy-rls version
  envoy-rls version --json                               {"version":"v1.2.3","commit":"...","date":"...","go":"..."}`
}

// Run prints the version.
func (c *versionCommand) Run(s streams) error {
	b := builtFrom()
	if c.JSON {
		return json.NewEncoder(s.out).Encode(map[string]string{"version": b.version, "commit": b.commit, "date": b.date, "go": b.goVersion})
	}
	_, err := fmt.Fprintln(s.out, b)
	return err
}
