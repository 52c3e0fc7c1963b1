package main

import (
	"log/slog"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
)

//go:generate go test -count=1 -run=TestCompatMd . -write

// fate is what has become here of a variable of the service that this one replaces.
type fate string

const (
	same    fate = "same"
	better  fate = "better"
	notKept fate = "not kept" // it may be set, and has no effect
)

// none is what oldVariable.ours is of a variable that has no default here.
const none = "none"

// oldVariable is a variable of the service that this one replaces.
type oldVariable struct {
	name     string
	standard string // its default there
	fate     fate
	ours     string // its default here, where that is another
	note     string // in Markdown: how it is better, or why it has no effect and what has
}

// others are variables that neither service reads and that mean no harm: Envoy Gateway sets the first, a library of the
// replaced service's reads the second.
var others = []string{"GRPC_SERVER_TLS_CA_CERT", "STATSD_PROTOCOL"}

// tellVariables logs which of the variables that are set have no effect, and which may be misspelt.
func tellVariables(log *slog.Logger, environ []string, app *kong.Application) {
	known := slices.Clone(others)
	for _, v := range oldVariables {
		known = append(known, v.name)
	}
	for _, command := range app.Children {
		for _, flag := range command.Flags {
			known = append(known, flag.Envs...)
		}
	}
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if i := slices.IndexFunc(oldVariables, func(v oldVariable) bool { return v.name == name }); i >= 0 {
			if v := &oldVariables[i]; v.fate == notKept && value != "" {
				log.Info("a variable has no effect", "variable", name, "why", strings.ReplaceAll(v.note, "`", ""))
			}
			continue
		}
		if meant, ok := misspelt(name, known); ok {
			log.Warn("a variable is unknown", "variable", name, "nearest", meant)
		}
	}
}

// misspelt finds the variable that an unknown name, which must begin as one of ours does, was probably meant to be.
func misspelt(name string, known []string) (meant string, ok bool) {
	topic, _, compound := strings.Cut(name, "_")
	ours := func(k string) bool { return strings.HasPrefix(k, topic+"_") }
	if !compound || slices.Contains(known, name) || !slices.ContainsFunc(known, ours) {
		return "", false
	}
	return descriptors.Nearest(name, known)
}
