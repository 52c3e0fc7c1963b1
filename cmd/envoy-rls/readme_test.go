package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// block is a command of a document's console block and what it is said to print.
type block struct {
	command string
	output  []string
}

// consoleBlocks are the commands of a document.
func consoleBlocks(t *testing.T, name string) []block {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(proctest.Root(), name))
	if err != nil {
		t.Fatal(err)
	}
	var list []block
	for _, m := range regexp.MustCompile("(?ms)^```console\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		for _, line := range strings.Split(strings.TrimSpace(m[1]), "\n") {
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				list = append(list, block{command: command})
				continue
			}
			last := &list[len(list)-1]
			last.output = append(last.output, line)
		}
	}
	return list
}

// changing is what differs from run to run: times, ports, versions, hashes, and counts near a window's edge.
var changing = regexp.MustCompile(`\d+(\.\d+)*(ms|s|µs)\b|[\w.\[\]:]*:\d+|hash=[0-9a-f]+|version=[\d.]+`)

func normal(line string) string { return changing.ReplaceAllString(line, "N") }

// reader follows the README in a directory of their own, with ports that nobody else has.
type reader struct {
	t       *testing.T
	dir     string
	env     []string
	redis   *proctest.Redis
	serving *proctest.Process
}

// TestTheReadmeIsTrue runs the README's console blocks in order and compares what they print. `make demo` and
// `make test` have tests of their own, or are this one.
func TestTheReadmeIsTrue(t *testing.T) {
	grpc := proctest.FreePort(t)
	r := &reader{t: t, dir: t.TempDir(), redis: proctest.StartRedis(t), env: []string{
		fmt.Sprint("GRPC_PORT=", grpc), fmt.Sprint("PORT=", proctest.FreePort(t)), fmt.Sprint("DEBUG_PORT=", proctest.FreePort(t)),
		fmt.Sprint("RLS_ADDR=127.0.0.1:", grpc), "DRAIN_DELAY=0s", "STORE_TIMEOUT=5s",
	}}
	if err := os.CopyFS(filepath.Join(r.dir, "config"), os.DirFS(filepath.Join(proctest.Root(), "config"))); err != nil {
		t.Fatal(err)
	}
	proctest.Binary(t) // may take a while
	// The README counts to five within one minute.
	proctest.Eventually(t, "a minute has fifteen seconds left", func() bool { return time.Now().Second() < 45 })
	blocks := consoleBlocks(t, "README.md")
	if len(blocks) < 8 {
		t.Fatalf("the README has %d commands", len(blocks))
	}
	for _, b := range blocks {
		if !strings.HasPrefix(b.command, "make ") {
			r.follow(b)
		}
	}
}

func (r *reader) follow(b block) {
	r.t.Helper()
	words := strings.Fields(strings.NewReplacer(
		"go run ./cmd/envoy-rls call", proctest.Binary(r.t)+" call --timeout=20s", "go run ./cmd/envoy-rls", proctest.Binary(r.t), "redis://localhost:6379", r.redis.URL()).Replace(b.command))
	if len(words) > 1 && words[1] == "serve" {
		r.serve(b, words)
		return
	}
	before := ""
	if r.serving != nil {
		before = r.serving.Output()
	}
	cmd := exec.Command("bash", "-c", strings.Join(words, " "))
	cmd.Dir, cmd.Env = r.dir, append(os.Environ(), r.env...)
	out, _ := cmd.CombinedOutput() // an exit of 1 is OVER_LIMIT
	if words[0] == "sed" {
		r.expectLog(b, func() string { return strings.TrimPrefix(r.serving.Output(), before) })
		return
	}
	if got := normal(strings.TrimSpace(string(out))); got != normal(strings.Join(b.output, "\n")) {
		r.t.Errorf("%s prints\n%s\nthe README says\n%s", b.command, out, strings.Join(b.output, "\n"))
	}
}

// serve takes the place of the service that runs.
func (r *reader) serve(b block, words []string) {
	r.t.Helper()
	if r.serving != nil {
		r.serving.Kill()
	}
	r.serving = proctest.StartIn(r.t, r.dir, r.env, words...)
	r.expectLog(b, r.serving.Output)
}

// expectLog waits for the lines that a block says are logged, in any order, and none that it doesn't say.
func (r *reader) expectLog(b block, log func() string) {
	r.t.Helper()
	for _, want := range b.output {
		proctest.Eventually(r.t, want, func() bool { return strings.Contains(normal(log()), normal(want)) })
	}
}
