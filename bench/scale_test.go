package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestScaleMeasuresAlongEveryAxisAndLeavesNothingBehind(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := &Scale{
		Binary:      self,
		Rules:       []int{1, 3},
		Descriptors: []int{1, 2},
		Callers:     []int{1, 2},
		Counters:    []int{100},
		Stores:      []string{memoryName},
		Turns:       1,
		Duration:    100 * time.Millisecond,
		Within:      time.Hour,
		Results:     Results(filepath.Join(t.TempDir(), "results")),
	}
	if err := command.Validate(); err != nil {
		t.Fatal(err)
	}
	out := new(strings.Builder)
	if err := command.Run(t.Context(), out); err != nil {
		t.Fatal(err)
	}
	for _, axis := range command.axes() {
		if !regexp.MustCompile(`(?m)^ *` + axis.name + ` +no-op +ratio +memory +ratio$`).MatchString(out.String()) {
			t.Errorf("no %s in:\n%s", axis.name, out)
		}
	}
	if text := saved(t, command.Results, "scaling"); !strings.Contains(text, out.String()) {
		t.Errorf("saved:\n%s\nprinted:\n%s", text, out)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestWhatHasNoTimeIsLeftOut(t *testing.T) {
	command := &Scale{Rules: []int{10}, Turns: 1, Within: time.Nanosecond}
	grown, err := command.measure(t.Context(), newTestRig(t))
	if err != nil || len(grown.measured.order) != 0 {
		t.Fatalf("%v, %v", grown, err)
	}
	if _, err := grown.picture(""); err != nil {
		t.Error(err)
	}
}

func TestNumbersAlongAnAxisGrow(t *testing.T) {
	for _, numbers := range [][]int{{2, 1}, {0, 1}, {-1}} {
		command := &Scale{Counters: numbers, Turns: 1, Within: time.Hour}
		if err := command.Validate(); err == nil || !strings.Contains(err.Error(), "numbers of counters must") {
			t.Errorf("%d: %v", numbers, err)
		}
	}
}
