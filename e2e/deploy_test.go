package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

func TestTheBootstrapForOperatorsIsValid(t *testing.T) {
	validates(t, filepath.Join(proctest.Root(), "deploy", "envoy.yaml"))
}

// validates tells whether Envoy takes a bootstrap, and nothing in it is deprecated.
func validates(t *testing.T, file string) {
	t.Helper()
	p := proctest.Start(t, nil, proctest.EnvoyBinary(t), "--mode", "validate", "--config-path", file, "--disable-hot-restart",
		"--use-dynamic-base-id")
	if code := p.Wait(); code != 0 || strings.Contains(p.Output(), "deprecated") {
		t.Errorf("exit code %d:\n%s", code, p.Output())
	}
}

// demo starts deploy/demo on free ports. Envoy has time enough to wait for a busy machine.
func demo(t *testing.T, args ...string) *proctest.Process {
	t.Helper()
	// Beside envoy-rls, so that it goes with it, and all tests have the same; the demo then builds soon.
	binary := filepath.Join(filepath.Dir(proctest.Binary(t)), "demo")
	if out, err := exec.Command("go", "build", "-o", binary, "../deploy/demo").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ports := []string{"--timeout=5s"}
	for _, name := range []string{"port", "envoy-admin-port", "upstream-port", "grpc-port", "http-port", "admin-port"} {
		ports = append(ports, fmt.Sprintf("--%s=%d", name, proctest.FreePort(t)))
	}
	p := proctest.Start(t, nil, binary, append(ports, args...)...)
	t.Cleanup(func() { p.End() }) // not by a kill: it has processes of its own to end
	return p
}

func TestTheDemoShowsWhatClientsSee(t *testing.T) {
	p := demo(t, "--once")
	proctest.Eventually(t, "all parts work together", func() bool { return strings.Contains(p.Output(), "upstream") })
	if code := p.Wait(); code != 0 {
		t.Fatalf("exit code %d:\n%s", code, p.Output())
	}
	printed := strings.Split(p.Output(), "\n")
	readme := readmeDemo(t)
	for i, want := range append(readme, "GET /  (no x-user)   200  ") {
		if i >= len(printed) || !strings.HasPrefix(changing.ReplaceAllString(printed[i], "N"), want) {
			t.Fatalf("line %d is not %q:\n%s", i+1, want, p.Output())
		}
	}
}

// changing is what differs from run to run: ports, and how long to wait.
var changing = regexp.MustCompile(`:\d{4,5}\b|retry-after: \d+`)

// readmeDemo is what the README says that the demo prints.
func readmeDemo(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(proctest.Root(), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "$ make demo\n")
	block, _, _ := strings.Cut(rest, "\n```")
	lines := strings.Split(changing.ReplaceAllString(block, "N"), "\n")
	if len(lines) != 6 {
		t.Fatalf("the README shows %d lines of the demo", len(lines))
	}
	return lines
}

func TestTheDemoStaysUpUntilItIsInterrupted(t *testing.T) {
	port := proctest.FreePort(t)
	p := demo(t, fmt.Sprintf("--port=%d", port))
	proctest.Eventually(t, "the demo stays up", func() bool { return strings.Contains(p.Output(), "Envoy stays up.") })
	a, err := get(fmt.Sprintf("http://127.0.0.1:%d/", port), []string{"x-user: robot"})
	if err != nil {
		t.Fatal(err)
	}
	if problems := a.differsFrom([]string{"429", "x-ratelimit-limit: 0, 0;w=60"}); problems != nil {
		t.Error(problems)
	}
	p.Signal(syscall.SIGINT)
	if code := p.Wait(); code != 0 {
		t.Errorf("exit code %d:\n%s", code, p.Output())
	}
	if c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
		_ = c.Close()
		t.Error("Envoy is still there")
	}
}

func TestTheDemoNamesThePortsThatAreTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := port(l.Addr().String())
	p := demo(t, "--grpc-port="+taken, "--http-port="+taken)
	if code := p.Wait(); code != 1 {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{
		"port " + taken + " is needed by envoy-rls, for Envoy, and can't be had", "choose another by --grpc-port",
		"choose another by --http-port",
	} {
		if !strings.Contains(p.Output(), want) {
			t.Errorf("%q is missing in:\n%s", want, p.Output())
		}
	}
}
