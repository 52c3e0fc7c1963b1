package main

import (
	"fmt"
	"os"
	"testing"
	"time"
)

// statTail is what follows the command in a stat line: 123 ticks user, 45 system.
const statTail = "S 1 42 42 0 -1 4194560 1010 0 7 0 123 45 9 9 20 0 9 0 1234 1261568 777 18446744073709551615"

func TestStatLinesAreParsedWhateverTheCommandIsCalled(t *testing.T) {
	for _, command := range []string{"envoy-rls", "Web Content", "a) S 1 (b", ")", "(((", "", "tmux: server"} {
		got, used, err := parseStat(fmt.Sprintf("42 (%s) %s\n", command, statTail))
		if err != nil || got != command || used != 1680*time.Millisecond {
			t.Errorf("(%s): command %q, used %v, error %v", command, got, used, err)
		}
	}
}

func TestBrokenStatLinesAreErrors(t *testing.T) {
	for _, line := range []string{"", "42", "42 (sh", "42 )sh( S", "42 (sh) S 1 2", "42 (sh) S 1 2 3 4 5 6 7 8 9 10 x 12"} {
		if _, _, err := parseStat(line); err == nil {
			t.Errorf("%q: no error", line)
		}
	}
}

func TestCPUTimeGrowsWithWork(t *testing.T) {
	self := Process{"self", os.Getpid()}
	before, err := self.cpuTime()
	if err != nil {
		t.Fatal(err)
	}
	for used := before; used <= before; {
		if used, err = self.cpuTime(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAProcessIsNameAndPID(t *testing.T) {
	var process Process
	if err := process.UnmarshalText([]byte("redis=123")); err != nil || process != (Process{"redis", 123}) {
		t.Errorf("redis=123: %v, %v", process, err)
	}
	for _, text := range []string{"", "123", "=123", "redis=", "redis=x", "redis=0", "redis=-1"} {
		if err := process.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
}
