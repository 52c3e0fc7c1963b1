package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

func TestTheCollectorIsSetByTheMemoryThatThereIs(t *testing.T) {
	percent, limit := debug.SetGCPercent(100), debug.SetMemoryLimit(-1)
	defer func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	}()
	group := func(limit uint64, err error) memlimit.Provider {
		return func() (uint64, error) { return limit, err }
	}
	const unset, counters = math.MaxInt64, 1 << 20
	for name, c := range map[string]struct {
		limit   int64 // GOMEMLIMIT
		group   memlimit.Provider
		gogc    string
		percent int
		want    int64
	}{
		"GOMEMLIMIT":                        {300 << 20, group(1<<30, nil), "", gcPercentWithLimit, 300 << 20},
		"GOMEMLIMIT and GOGC":               {300 << 20, group(1<<30, nil), "70", 100, 300 << 20},
		"a control group's limit":           {unset, group(1000<<20, nil), "", gcPercentWithLimit, 900 << 20},
		"that and GOGC":                     {unset, group(1000<<20, nil), "70", 100, 900 << 20},
		"a group without a limit":           {unset, group(0, memlimit.ErrNoLimit), "", gcPercentWithout, 1<<30 + 2*counters},
		"one that says so by a huge number": {unset, group(math.MaxUint64, nil), "", gcPercentWithout, 1<<30 + 2*counters},
		"no groups":                         {unset, group(0, memlimit.ErrNoCgroup), "", gcPercentWithout, 1<<30 + 2*counters},
	} {
		debug.SetGCPercent(100)
		debug.SetMemoryLimit(c.limit)
		t.Setenv("GOGC", c.gogc)
		tuneGC(counters, c.group)
		if got := debug.SetGCPercent(100); got != c.percent {
			t.Errorf("%s: %d %%, want %d", name, got, c.percent)
		}
		if got := debug.SetMemoryLimit(-1); got != c.want {
			t.Errorf("%s: the limit is %d, want %d", name, got, c.want)
		}
	}
}

// TestAServiceInAControlGroupHasItsLimit needs the right to make one.
func TestAServiceInAControlGroupHasItsLimit(t *testing.T) {
	const limit = 500 << 20
	group := controlGroup(t, limit)
	program := filepath.Join(t.TempDir(), "program")
	text := fmt.Sprintf("#!/bin/sh\necho $$ >%s/cgroup.procs\nexec '%s' \"$@\"\n", group, proctest.Binary(t))
	if err := os.WriteFile(program, []byte(text), 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	s := proctest.StartBinary(t, program, "--rules="+writeRules(t))
	if got := s.Metric("go_gc_gomemlimit_bytes"); got != limit/10*9 {
		t.Errorf("the collector's limit is %v, want nine tenths of %d", got, limit)
	}
}

// controlGroup makes a control group with so much memory, of version 1 or 2, and returns its directory.
func controlGroup(t *testing.T, limit int) string {
	t.Helper()
	for _, v := range []struct{ parent, file string }{
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"},
		{"/sys/fs/cgroup", "memory.max"},
	} {
		dir := filepath.Join(v.parent, filepath.Base(t.TempDir())+fmt.Sprint("-envoy-rls-", os.Getpid()))
		if os.Mkdir(dir, 0o700) != nil {
			continue
		}
		t.Cleanup(func() { _ = os.Remove(dir) }) // nobody is in it by then
		file := filepath.Join(dir, v.file)
		if _, err := os.Stat(file); err == nil && os.WriteFile(file, []byte(fmt.Sprint(limit)), 0o600) == nil {
			return dir
		}
	}
	t.Skip("no control group of memory can be made here")
	return ""
}
