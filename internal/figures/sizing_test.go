package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
	"github.com/envoy-rls/envoy-rls/pkg/redisstore"
)

// sizingRow is a line of the table in docs/sizing.md that has a measured figure first.
func sizingRow(t *testing.T, name string) float64 {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(proctest.Root(), "docs", "sizing.md"))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(name) + ` \| (\d+) `).FindSubmatch(page)
	if m == nil {
		t.Errorf("docs/sizing.md has no line for %s", name)
		return 0
	}
	n, _ := strconv.ParseFloat(string(m[1]), 64) // it is digits
	return n
}

// differs tells of a figure that is a fifth away from that of docs/sizing.md: servers have their ways.
func differs(t *testing.T, name string, got float64) {
	t.Helper()
	t.Logf("%s: %.0f", name, got)
	if want := sizingRow(t, name); got > want*1.2 || got < want*0.8 {
		t.Errorf("%s: measured %.0f, and the document says %.0f", name, got, want)
	}
}

// TestTheDocumentTellsHowRedisIsSized measures what Redis needs for many counters, and for the calls about them.
func TestTheDocumentTellsHowRedisIsSized(t *testing.T) {
	const counters, calls = 100_000, 2000
	r := proctest.StartRedis(t)
	s, err := redisstore.Open(redisstore.Options{Address: r.URL(), Timeout: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	admin := r.Client()
	info := func(section, field string) float64 {
		text, err := admin.Info(t.Context(), section).Result()
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(text, "\r\n"+field+":")
		value, _, _ := strings.Cut(rest, "\r\n")
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatalf("%s: %v", field, err)
		}
		return n
	}
	decide := func(l *limiter.Limit, from, to int) {
		t.Helper()
		b := &limiter.Batch{}
		for c := from; c < to; c++ {
			b.Hits = append(b.Hits, limiter.Hit{Key: fmt.Sprintf("%0*d", keyLength-len("rls:v1::"), c), Limit: l, Cost: 1})
		}
		b.Decisions = make([]limiter.Decision, len(b.Hits))
		if err := s.Decide(t.Context(), b); err != nil || !b.Allowed {
			t.Fatalf("allowed %t: %v", b.Allowed, err)
		}
	}
	for _, state := range states[:3] {
		if err := admin.FlushDB(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		before := info("memory", "used_memory")
		for c := 0; c < counters; c += 200 {
			decide(&state.limit, c, c+200)
		}
		differs(t, state.name, (info("memory", "used_memory")-before)/counters)
	}
	for name, n := range map[string]int{"one counter a call": 1, "20 counters a call": 20} {
		in, out := info("stats", "total_net_input_bytes"), info("stats", "total_net_output_bytes")
		for c := range calls {
			decide(&states[0].limit, c*n, (c+1)*n)
		}
		differs(t, name+", to Redis", (info("stats", "total_net_input_bytes")-in)/float64(calls*n))
		differs(t, name+", from Redis", (info("stats", "total_net_output_bytes")-out)/float64(calls*n))
	}
}

// readFile is a file of the repository.
func readFile(t *testing.T, name ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{proctest.Root()}, name...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestTheDocumentTellsTheTimesOfTheLatestRun compares docs/sizing.md with bench/results/latest.txt.
func TestTheDocumentTellsTheTimesOfTheLatestRun(t *testing.T) {
	page, latest := readFile(t, "docs", "sizing.md"), readFile(t, "bench", "results", "latest.txt")
	for scenario, row := range map[string]string{
		"spread": "one fixed window", "hot": "the same one as everybody", "nested": "three fixed windows",
		"sliding": "one sliding window", "bucket": "one token bucket", "hot-over": "a limit that is used up",
	} {
		m := regexp.MustCompile(`(?m)^ +` + scenario + ` +redis .* redis-server ([\d.]+), envoy-rls ([\d.]+)$`).FindStringSubmatch(latest)
		if m == nil {
			t.Fatalf("bench/results/latest.txt has no %s", scenario)
		}
		if line := fmt.Sprintf("| %s | %s µs | %s µs |", row, m[1], m[2]); !strings.Contains(page, line) {
			t.Errorf("docs/sizing.md should say\n%s", line)
		}
	}
}

// TestTheDocumentTellsWhatASimulationCosts compares docs/simulate.md with bench/results/simulate.txt.
func TestTheDocumentTellsWhatASimulationCosts(t *testing.T) {
	page, latest := readFile(t, "docs", "simulate.md"), readFile(t, "bench", "results", "simulate.txt")
	for traffic, row := range map[string]string{"made-up": "made up", "common": "a log in the common format", "json": "JSON, of 300 bytes a line"} {
		line := "| " + row + " |"
		for sets := range 2 {
			m := regexp.MustCompile(fmt.Sprintf(`(?m)^BenchmarkSimulate/%s/sets=%d\S*\s+1000000\s.*\s([\d.]+) cpu-ns/op`, traffic, sets+1)).FindStringSubmatch(latest)
			if m == nil {
				t.Fatalf("bench/results/simulate.txt has no million of %s for %d sets", traffic, sets+1)
			}
			ns, _ := strconv.ParseFloat(m[1], 64) // it is digits
			line += fmt.Sprintf(" %.1f s |", ns*1_000_000/float64(time.Second))
		}
		if !strings.Contains(page, line+"\n") {
			t.Errorf("docs/simulate.md should say\n%s", line)
		}
	}
}
