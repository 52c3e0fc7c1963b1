package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
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
		Duration:  100 * time.Millisecond,
		Scenarios: []string{"hot", "nothing-matches"},
		Stores:    []string{"memory"},
		Pressure:  gentle(),
	}
	if _, err := exec.LookPath("redis-server"); err == nil {
		command.Stores = append(command.Stores, "redis")
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
	for _, server := range append(command.Stores, noopName, "in-process") {
		if got := strings.Count(out.String(), " "+server+" "); got < len(command.Scenarios) {
			t.Errorf("%d rows of %s in:\n%s", got, server, out)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestAStoppedServerIsGone(t *testing.T) {
	server, err := start(t.Context(), command{"sleeper", []string{"sleep", "3600"}, t.TempDir(), always})
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
	_, err := start(t.Context(), command{"broken", argv, t.TempDir(), never})
	if err == nil || !strings.Contains(err.Error(), "broken ended by itself: exit status 3; its log ends:\nno such rules") {
		t.Errorf("error %v", err)
	}
}

func TestAServerThatEndsDuringTheRunIsAnError(t *testing.T) {
	server, err := start(t.Context(), command{"short", []string{"true"}, t.TempDir(), always})
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
	for _, names := range [][]string{{"memory"}, {"no-op"}, {"other", "other"}} {
		compare := &Compare{Rounds: 1, Pressure: gentle()}
		for _, name := range names {
			compare.Extra = append(compare.Extra, Extra{Name: name})
		}
		if err := compare.Validate(); err == nil || !strings.Contains(err.Error(), "is taken") {
			t.Errorf("%q: %v", names, err)
		}
	}
}
