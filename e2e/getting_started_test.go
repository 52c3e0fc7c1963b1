package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// beginner follows docs/getting-started.md in a directory of their own, with ports that nobody else has.
type beginner struct {
	t     *testing.T
	dir   string
	env   []string
	ports *strings.Replacer
	runs  map[string]*proctest.Process // by program
}

// variable is what differs from run to run: times, ports, versions and hashes.
var variable = regexp.MustCompile(`\b\d+[\dhm.]*(ms|s|µs|m|h)\b|[\w.\[\]:]*:\d{4,5}\b|hash=[0-9a-f]+|version=[\d.]+`)

func alike(text string) string { return variable.ReplaceAllString(strings.TrimSpace(text), "N") }

func TestWhoeverFollowsGettingStartedSeesWhatItSays(t *testing.T) {
	b := newBeginner(t)
	withinOneWindow(t)
	text, err := os.ReadFile(filepath.Join(proctest.Root(), "docs", "getting-started.md"))
	if err != nil {
		t.Fatal(err)
	}
	commands := 0
	for _, block := range regexp.MustCompile("(?ms)^```console\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		for _, step := range regexp.MustCompile(`(?m)^\$ `).Split(block[1], -1)[1:] {
			b.follow(step)
			commands++
		}
	}
	if commands < 15 {
		t.Errorf("the page has %d commands", commands)
	}
}

func newBeginner(t *testing.T) *beginner {
	t.Helper()
	b := &beginner{t: t, dir: t.TempDir(), runs: map[string]*proctest.Process{}}
	var free []string
	for _, port := range []string{"8080", "8081", "8082", "8083", "6070", "6071", "9901", "10000", "18000"} {
		free = append(free, port, fmt.Sprint(proctest.FreePort(t)))
	}
	_, redis, _ := strings.Cut(proctest.StartRedis(t).Addr, ":")
	b.ports = strings.NewReplacer(append(free, "6379", redis)...)
	programs := filepath.Join(b.dir, "bin")
	for name, file := range map[string]string{"envoy-rls": proctest.Binary(t), "envoy": proctest.EnvoyBinary(t)} {
		file, err := filepath.Abs(file)
		if err == nil {
			err = os.MkdirAll(programs, 0o700)
		}
		if err == nil {
			err = os.Symlink(file, filepath.Join(programs, name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	bootstrap, err := os.ReadFile(filepath.Join(proctest.Root(), "deploy", "envoy.yaml"))
	if err == nil {
		err = os.Mkdir(filepath.Join(b.dir, "deploy"), 0o700)
	}
	// A busy machine is slower than the page.
	text := strings.Replace(b.ports.Replace(string(bootstrap)), "timeout: 0.05s", "timeout: 10s", 1)
	if err == nil {
		err = os.WriteFile(filepath.Join(b.dir, "deploy", "envoy.yaml"), []byte(text), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	b.env = strings.Split(b.ports.Replace("GRPC_PORT=8081 PORT=8080 DEBUG_PORT=6070 RLS_ADDR=127.0.0.1:8081 DRAIN_DELAY=0s STORE_TIMEOUT=5s"), " ")
	b.env = append(b.env, "PATH="+programs+":"+os.Getenv("PATH"))
	return b
}

// follow runs a step, the command and below it what is seen: lines of a log in any order, or all that is printed.
func (b *beginner) follow(step string) {
	b.t.Helper()
	command, seen, _ := strings.Cut(step, "\n")
	if here, after, found := strings.Cut(step, "\nEOF\n"); found {
		command, seen = here+"\nEOF\n", after
	}
	command = b.ports.Replace(command)
	words := strings.Fields(command)
	if words[0] == "python3" || words[1] == "serve" || words[1] == "--config-path" {
		b.start(words, seen)
		return
	}
	cmd := exec.Command("bash", "-c", command)
	cmd.Dir, cmd.Env = b.dir, append(os.Environ(), b.env...)
	out, _ := cmd.CombinedOutput() // an exit of 1 is OVER_LIMIT
	got := string(out)
	if words[0] == "envoy" {
		got = got[max(strings.LastIndex(got, "configuration '"), 0):] // behind its log
	}
	if alike(got) != alike(seen) {
		b.t.Errorf("%s prints\n%s\nthe page says\n%s", command, out, seen)
	}
}

// start runs what goes on. A service that has no port of its own takes the place of the one before.
func (b *beginner) start(words []string, seen string) {
	b.t.Helper()
	name := words[0]
	if strings.Contains(strings.Join(words, " "), "--port") {
		name += " 2"
	} else if before := b.runs[name]; before != nil {
		before.End()
	}
	switch words[0] {
	case "envoy":
		words = append(words, "--use-dynamic-base-id", "--disable-hot-restart", "--concurrency", "1")
	case "python3":
		words = append(words, "--directory", b.dir)
	}
	if words[0] != "python3" {
		words[0] = filepath.Join(b.dir, "bin", words[0])
	}
	p := proctest.StartIn(b.t, b.dir, b.env, words...)
	b.runs[name] = p
	for line := range strings.Lines(seen) {
		proctest.Eventually(b.t, line, func() bool { return strings.Contains(alike(p.Output()), alike(line)) })
	}
	if strings.HasPrefix(name, "envoy-rls") {
		return
	}
	port := map[string]string{"envoy": "10000", "python3": "18000"}[name]
	proctest.Eventually(b.t, name+" answers", func() bool {
		_, err := get("http://127.0.0.1:"+b.ports.Replace(port)+"/", nil)
		return err == nil
	})
}
