package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestProfileTellsOnWhatTimeIsSpent(t *testing.T) {
	binary := filepath.Join(t.TempDir(), serviceName)
	if text, err := exec.Command("go", "build", "-C", "..", "-o", binary, "./cmd/envoy-rls").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	command := &Profile{
		Binary:    binary,
		Scenarios: []string{"hot"},
		Stores:    []string{memoryName, redisStore},
		Duration:  time.Second,
		Results:   Results(filepath.Join(t.TempDir(), "results")),
		Pressure:  gentle(),
	}
	command.Callers = 16
	out := new(strings.Builder)
	if err := command.Run(t.Context(), out); err != nil {
		t.Fatal(err)
	}
	const spent = `\d+\.\d\d`
	for _, row := range []string{
		"memory +redis",
		"gRPC +" + spent + " +" + spent,
		"Redis client +- +" + spent,
		"calls of Redis +- +" + spent,
		"Redis itself +- +" + spent,
		"sum +" + spent + " +" + spent,
		`decisions a script call +- +[1-9]\d*\.\d\d`,
	} {
		if !regexp.MustCompile(`(?m)^ *` + row + `$`).MatchString(out.String()) {
			t.Errorf("no row %s in:\n%s", row, out)
		}
	}
	text, err := os.ReadFile(filepath.Join(string(command.Results), "profile.txt"))
	if err != nil || !strings.Contains(string(text), out.String()) {
		t.Errorf("saved:\n%s\n%v\nprinted:\n%s", text, err, out)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
