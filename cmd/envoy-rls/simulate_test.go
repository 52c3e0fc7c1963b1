package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
	"github.com/envoy-rls/envoy-rls/internal/simulate"
	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
)

// liveRules have no limit that lets the next one pass near a multiple of eight seconds, the pace of the test below: a few
// milliseconds lie between a line's time and the decision.
const liveRules = `
domain: live
descriptors:
  - {key: fixed, rate_limit: {unit: minute, requests_per_unit: 3}}
  - {key: log, rate_limit: {unit: second, unit_multiplier: 61, requests_per_unit: 4, algorithm: sliding_log}}
  - {key: bucket, rate_limit: {unit: second, unit_multiplier: 61, requests_per_unit: 4, algorithm: token_bucket, burst: 2}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
`

// TestTheProgramOverRedisSaysWhatSimulateSaysOfItsLog asks the program over a Redis whose clock is moved on, writes a log
// of that, and simulates it.
func TestTheProgramOverRedisSaysWhatSimulateSaysOfItsLog(t *testing.T) {
	redis, step := proctest.StartRedisWithClock(t)
	rules := filepath.Join(t.TempDir(), "live.yaml")
	if err := os.WriteFile(rules, []byte(liveRules), 0o600); err != nil {
		t.Fatal(err)
	}
	// A cache of refusals goes by this machine's clock.
	service := proctest.StartService(t, "--rules="+rules, "--redis="+redis.URL(), "--store-timeout=5s", "--deny-cache=0")
	client := ratelimit.NewRateLimitServiceClient(dial(t, service.GRPC))
	proctest.Eventually(t, "no minute ends near a step", func() bool { return time.Now().Second()%8 == 2 })
	var log strings.Builder
	var want []bool
	var slowest time.Duration
	for n := range 17 {
		step(time.Duration(n*8) * time.Second)
		for _, key := range []string{"fixed", "log", "bucket", "shadow"} {
			began := time.Now()
			now, err := redis.Client().Time(context.Background()).Result()
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&log, "{\"ts\": %d, %q: \"x\"}\n", now.UnixMicro(), key)
			answer, err := client.ShouldRateLimit(context.Background(), &ratelimit.RateLimitRequest{
				Domain:      "live",
				Descriptors: []*common.RateLimitDescriptor{{Entries: []*common.RateLimitDescriptor_Entry{{Key: key, Value: "x"}}}},
			})
			if err != nil {
				t.Fatal(err)
			}
			slowest = max(slowest, time.Since(began))
			want = append(want, answer.GetOverallCode() == ratelimit.RateLimitResponse_OVER_LIMIT)
		}
	}
	if slowest > time.Second/2 { // a busy machine: the log does not tell when that call was decided
		TestTheProgramOverRedisSaysWhatSimulateSaysOfItsLog(t)
		return
	}
	refused := 0
	for i, got := range simulated(t, log.String()) {
		if got != want[i] {
			t.Errorf("request %d is refused: %t, by the program over Redis: %t", i, got, want[i])
		}
		if want[i] {
			refused++
		}
	}
	if refused < len(want)/10 {
		t.Errorf("%d of %d are refused, which shows little", refused, len(want))
	}
}

// simulated tells of each line of a log whether it is refused.
func simulated(t *testing.T, log string) []bool {
	t.Helper()
	file := filepath.Join(t.TempDir(), "access.log")
	if err := os.WriteFile(file, []byte(log), 0o600); err != nil {
		t.Fatal(err)
	}
	rules, problems := descriptors.Compile([]descriptors.File{{Name: "live.yaml", Data: []byte(liveRules)}}, descriptors.Options{})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	mapping, err := simulate.NewMapping([]string{"fixed={fixed}", "log={log}", "bucket={bucket}", "shadow={shadow}"}, "")
	if err != nil {
		t.Fatal(err)
	}
	var refused []bool
	run := simulate.Run{
		Traffic: &simulate.Log{Files: []string{file}, Mapping: mapping},
		Sets:    []*simulate.Set{simulate.NewSet(rules, simulate.Options{Domain: "live"})},
		Each:    func(_ *simulate.Request, v simulate.Verdict) { refused = append(refused, v.Refused) },
	}
	if _, err := run.Do(); err != nil {
		t.Fatal(err)
	}
	return refused
}

var shownFile = regexp.MustCompile("(?ms)`([a-z.]+)`:\n\n```[a-z]*\n(.*?)^```$")

// TestThePageOfSimulateIsTrue writes the files that docs/simulate.md shows, runs its commands, and compares what they print.
func TestThePageOfSimulateIsTrue(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(proctest.Root(), "docs", "simulate.md"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files := shownFile.FindAllStringSubmatch(string(text), -1)
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(dir, f[1]), []byte(f[2]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	blocks := consoleBlocks(t, "docs/simulate.md")
	if len(files) != 3 || len(blocks) != 4 {
		t.Fatalf("it shows %d files and %d commands", len(files), len(blocks))
	}
	for _, b := range blocks {
		// The one without output, which is timed, has less to do here.
		cmd := exec.Command("bash", "-c", strings.NewReplacer("envoy-rls", proctest.Binary(t), "--for 24h", "--for 30m").Replace(b.command))
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if len(b.output) == 0 && strings.HasPrefix(b.command, "time ") {
			if err != nil || !strings.Contains(string(out), " requests to domain api") {
				t.Errorf("%s: %v:\n%s", b.command, err, out)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", b.command, err)
		}
		if got := strings.TrimSpace(string(out)); got != strings.Join(b.output, "\n") {
			t.Errorf("%s prints\n%s\nthe page says\n%s", b.command, got, strings.Join(b.output, "\n"))
		}
	}
	if picture, err := os.ReadFile(filepath.Join(dir, "burst.svg")); err != nil || !strings.Contains(string(picture), "<title>api.remote_address") {
		t.Errorf("the picture is %.200s (%v)", picture, err)
	}
}
