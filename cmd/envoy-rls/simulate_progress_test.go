package main

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

func TestProgressIsALineThatIsTakenAway(t *testing.T) {
	var out strings.Builder
	now := time.Unix(0, 0)
	part := 0.5
	p := &progress{w: &out, part: func(int64) float64 { return part }, now: func() time.Time { return now }, last: now}
	show := func(want string) {
		t.Helper()
		out.Reset()
		p.show(7, 1_800_000_000_000_000)
		if got := out.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	show("")
	now = now.Add(time.Second)
	show("\r" + strings.Repeat("█", 15) + strings.Repeat("░", 15) + "  50 %  7 requests, up to 2027-01-15 08:00:00")
	show("")
	now, part = now.Add(time.Second), -1 // the size is not known
	show("\r7 requests, up to 2027-01-15 08:00:00" + strings.Repeat(" ", 38))
	out.Reset()
	p.clear()
	if got := out.String(); got != "\r"+strings.Repeat(" ", 75)+"\r" {
		t.Errorf("%q", got)
	}
}

// TestProgressIsShownOnATerminalOnly runs the program on a terminal, which util-linux's script makes.
func TestProgressIsShownOnATerminalOnly(t *testing.T) {
	command := proctest.Binary(t) + " simulate --generate steady --rate 10000 --for 30s -d user={value} --rules " + writeRules(t)
	terminal, err := exec.Command("script", "-qec", command, "/dev/null").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, terminal)
	}
	if !strings.Contains(string(terminal), " %  ") || !strings.Contains(string(terminal), "requests, up to 2026-01-01 00:0") {
		t.Errorf("a terminal shows\n%s", terminal)
	}
	piped, err := exec.Command("bash", "-c", command).CombinedOutput()
	if err != nil || strings.Contains(string(piped), "\r") {
		t.Errorf("a pipe gets %v\n%s", err, piped)
	}
}
