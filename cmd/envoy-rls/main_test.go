package main

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// TestMain lets the test binary be the program, under both of its names, when a script runs it.
func TestMain(m *testing.M) {
	testscript.Main(allTests{m}, map[string]func(){"envoy-rls": main, "ratelimit": main})
}

// allTests are this package's tests, and the removal of what they built.
type allTests struct{ m *testing.M }

// Run implements testscript.TestingM.
func (a allTests) Run() int { return proctest.Main(a.m) }
