package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// always is a server that is ready at once.
func always(context.Context) error { return nil }

func TestCompareMeasuresEveryServerAndLeavesNothingBehind(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := &Compare{
		Binary:    self,
		Rounds:    2,
		Turns:     2,
		Duration:  100 * time.Millisecond,
		Scenarios: []string{"hot", "nothing-matches"},
		Stores:    []string{"memory"},
		Steady:    200,
		Also:      []Binary{{"before", self}},
		Results:   Results(filepath.Join(t.TempDir(), "results")),
		Pressure:  gentle(),
	}
	servers := []string{noopName, "memory", "before/memory", "in-process"}
	if _, err := exec.LookPath("redis-server"); err == nil {
		command.Stores = append(command.Stores, "redis")
		servers = append(servers, "redis", "before/redis")
	}
	extra := fmt.Sprintf("in-process=%s@%d", serve(t, newNoopServer()), os.Getpid())
	command.Extra = make([]Extra, 1)
	if err := command.Extra[0].UnmarshalText([]byte(extra)); err != nil {
		t.Fatal(err)
	}
	out := new(strings.Builder)
	if err := command.Run(t.Context(), out); err != nil {
		t.Fatal(err)
	}
	for _, server := range servers {
		for _, task := range []string{"hot", "nothing-matches", "spread, 200/s"} {
			if row := regexp.MustCompile(`(?m)^ *` + task + ` +` + server + ` `); !row.MatchString(out.String()) {
				t.Errorf("no row of %s, %s in:\n%s", task, server, out)
			}
		}
	}
	if len(command.Stores) == 2 && !strings.Contains(out.String(), baselineName) {
		t.Errorf("no baseline in:\n%s", out)
	}
	text := saved(t, command.Results, "latest")
	if !strings.Contains(text, out.String()) || !strings.Contains(text, runtime.Version()) {
		t.Errorf("saved:\n%s\nprinted:\n%s", text, out)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestAStoppedServerIsGone(t *testing.T) {
	server, err := start(t.Context(), command{"sleeper", []string{"sleep", "3600"}, nil, t.TempDir(), always})
	if err != nil {
		t.Fatal(err)
	}
	if err := server.stop(); err != nil {
		t.Error(err)
	}
	if err := syscall.Kill(server.process.Process.Pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("after the stop: %v", err)
	}
}

func TestAServerThatDoesNotStartIsAnErrorWithItsLog(t *testing.T) {
	never := func(context.Context) error { return errors.New("not ready") }
	argv := []string{"sh", "-c", "echo no such rules; exit 3"}
	_, err := start(t.Context(), command{"broken", argv, nil, t.TempDir(), never})
	if err == nil || !strings.Contains(err.Error(), "broken ended by itself: exit status 3; its log ends:\nno such rules") {
		t.Errorf("error %v", err)
	}
}

func TestAServerThatEndsDuringTheRunIsAnError(t *testing.T) {
	server, err := start(t.Context(), command{"short", []string{"true"}, nil, t.TempDir(), always})
	if err != nil {
		t.Fatal(err)
	}
	<-server.ended
	if err := server.stop(); err == nil || !strings.Contains(err.Error(), "short ended by itself") {
		t.Errorf("error %v", err)
	}
}

func TestAnExtraServerIsNameAddressAndPIDs(t *testing.T) {
	var extra Extra
	if err := extra.UnmarshalText([]byte("other=127.0.0.1:8081@12,34")); err != nil {
		t.Fatal(err)
	}
	want := []Process{{"pid 12", 12}, {"pid 34", 34}}
	if extra.Name != "other" || extra.Address != "127.0.0.1:8081" || !slices.Equal(extra.Processes, want) {
		t.Errorf("extra %+v", extra)
	}
	if err := extra.UnmarshalText([]byte("other=127.0.0.1:8081")); err != nil || extra.Processes != nil {
		t.Errorf("without pids: %+v, %v", extra, err)
	}
	for _, text := range []string{"", "127.0.0.1:8081", "=127.0.0.1:8081", "other=127.0.0.1", "other=127.0.0.1:1@", "other=127.0.0.1:1@x"} {
		if err := extra.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
}

func TestNamesOfServersDiffer(t *testing.T) {
	for _, names := range [][]string{{"memory"}, {"no-op"}, {"INCRBY+EXPIRE"}, {"other", "other"}} {
		compare := &Compare{Rounds: 1, Turns: 1, Pressure: gentle(), Also: []Binary{{"before", "."}}}
		for _, name := range names {
			compare.Extra = append(compare.Extra, Extra{Name: name})
		}
		if err := compare.Validate(); err == nil || !strings.Contains(err.Error(), "is taken") {
			t.Errorf("%q: %v", names, err)
		}
	}
}

func TestAnotherBuildIsNameAndPath(t *testing.T) {
	var build Binary
	if err := build.UnmarshalText([]byte("before=/bin/envoy-rls")); err != nil || build != (Binary{"before", "/bin/envoy-rls"}) {
		t.Errorf("build %+v, %v", build, err)
	}
	for _, text := range []string{"", "before", "before=", "=/bin/envoy-rls"} {
		if err := build.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
	compare := &Compare{Rounds: 1, Turns: 1, Pressure: gentle(), Also: []Binary{{"before", filepath.Join(t.TempDir(), "gone")}}}
	if err := compare.Validate(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a build that is not there: %v", err)
	}
}

func TestNoRoundBeginsThatWouldEndTooLate(t *testing.T) {
	workload, err := newWorkload("hot", benchDomain)
	if err != nil {
		t.Fatal(err)
	}
	command := &Compare{Rounds: 100, Turns: 1, Within: time.Nanosecond, Duration: 100 * time.Millisecond}
	measured, err := command.measure(t.Context(), newTestRig(t), []task{{"hot", workload, gentle()}})
	if err != nil {
		t.Fatal(err)
	}
	if got := len(measured.results[cell{"hot", noopName}]); got != 1 {
		t.Errorf("%d rounds", got)
	}
}

func TestAnotherOneBeginsInEachTurn(t *testing.T) {
	for n, want := range []string{"abc", "bca", "cab", "abc"} {
		if got := strings.Join(rotate([]string{"a", "b", "c"}, n), ""); got != want {
			t.Errorf("turn %d: %s, want %s", n, got, want)
		}
	}
}

// newTestRig makes a rig that is gone with the test.
func newTestRig(t *testing.T) *rig {
	t.Helper()
	made, err := newRig()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(made.dir) })
	return made
}

func TestTheMemoryOfACounterIsTheGrowthOfTheHeap(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	workload, err := newWorkload("counters=1000", benchDomain)
	if err != nil {
		t.Fatal(err)
	}
	// The stub keeps no counters: what its heap grows by is that of its connections.
	if got, err := heapOfACounter(t.Context(), envoyRLS{newTestRig(t), self}, workload); err != nil || math.Abs(got) > 1000 {
		t.Errorf("%v bytes, %v", got, err)
	}
}
