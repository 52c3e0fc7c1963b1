package main

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"
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
	// A second's samples may miss any owner, and a processor's clock what Redis spent.
	const cell = ` +(?:\d+\.\d\d|-)`
	rows := []string{" +memory +redis"}
	for _, name := range append(rowNames(), "Redis itself", "Redis in the kernel", "sum", "decisions a script call") {
		rows = append(rows, " *"+regexp.QuoteMeta(name)+cell+cell)
	}
	want := "(?m)^ +hot +hot\n" + strings.Join(rows, "\n") + "\n$"
	if !regexp.MustCompile(want).MatchString(out.String()) {
		t.Errorf("no table %s in:\n%s", want, out)
	}
	text, err := os.ReadFile(filepath.Join(string(command.Results), "profile.txt"))
	if err != nil || !strings.Contains(string(text), out.String()) {
		t.Errorf("saved:\n%s\n%v\nprinted:\n%s", text, err, out)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestASampleIsOfTheInnermostFrameWithAnOwner(t *testing.T) {
	stack := func(micros int64, innermostFirst ...string) *profile.Sample {
		sample := &profile.Sample{Value: []int64{1, micros}}
		for _, name := range innermostFirst {
			function := &profile.Function{Name: name}
			sample.Location = append(sample.Location, &profile.Location{Line: []profile.Line{{Function: function}}})
		}
		return sample
	}
	const ours, grpc = "github.com/envoy-rls/envoy-rls/pkg/rls.(*Service).decide", "google.golang.org/grpc.(*Server).handleStream"
	found := shares(&profile.Profile{Sample: []*profile.Sample{
		stack(10, "runtime.mallocgc", "github.com/envoy-rls/envoy-rls/pkg/redisstore.(*lane).Decide", ours, grpc),
		stack(20, "syscall.write", "github.com/redis/go-redis/v9.(*conn).Write", "runtime.goexit"),
		stack(5, ours, grpc, "runtime.goexit"),
		stack(25, "runtime.memmove", grpc),
		stack(15, "runtime.findRunnable", "runtime.mcall"),
		stack(15, "runtime.scanobject", "runtime.gcBgMarkWorker"),
		stack(10, "time.now"),
	}})
	want := map[string]float64{
		"calls of Redis": 0.1, "Redis client": 0.2, "match, decide, answer": 0.05, "gRPC": 0.25, "scheduler": 0.15,
		"garbage collection": 0.15, other: 0.1,
	}
	if !maps.Equal(found, want) {
		t.Errorf("%v, want %v", found, want)
	}
}

func TestWhatRedisSpendsIsSplitAsItWasMeanwhile(t *testing.T) {
	s := &spending{redis: redisTimes{user: 8}} // µs a decision
	s.addRedis(redisTimes{user: 1, system: 1, calls: 100}, redisTimes{user: 4, system: 2, calls: 10_100})
	if want := (redisTimes{user: 6, system: 2, calls: 10_000}); s.redis != want {
		t.Errorf("%+v, want %+v", s.redis, want)
	}
	if want := 50.0; s.shared != want { // 4 s over 8 µs are 500,000 decisions
		t.Errorf("%v decisions a call, want %v", s.shared, want)
	}
}
