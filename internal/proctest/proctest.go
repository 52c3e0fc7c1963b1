// Package proctest starts the real servers that tests need, on free loopback ports, and ends them by their
// pid when the test ends. A server that isn't installed fails the test and says how to install it.
package proctest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// patience is how long a server may take to start or to end, on a machine that has other things to do as well.
const patience = time.Minute

// Process is a running server.
type Process struct {
	t      testing.TB
	cmd    *exec.Cmd
	output *buffer
	exited chan struct{}
}

// Start runs a program with the given environment in addition to this one's. The test's end kills it. What
// it printed is part of the log of a test that failed.
func Start(t testing.TB, env []string, program string, args ...string) *Process {
	t.Helper()
	return StartIn(t, "", env, append([]string{program}, args...)...)
}

// StartIn is Start in a directory.
func StartIn(t testing.TB, dir string, env []string, command ...string) *Process {
	t.Helper()
	p := &Process{t: t, output: &buffer{}}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir = dir
	p.run(cmd, append(os.Environ(), env...))
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("%s printed:\n%s", strings.Join(command, " "), p.Output())
		}
	})
	return p
}

func (p *Process) run(cmd *exec.Cmd, env []string) {
	p.t.Helper()
	cmd.Env = env
	cmd.Stdout, cmd.Stderr = p.output, p.output
	if err := cmd.Start(); err != nil {
		p.t.Fatalf("starting %s: %v", cmd.Path, err)
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // its code is in ProcessState
		close(exited)
	}()
	p.cmd, p.exited = cmd, exited
}

// Restart ends the process, if it hasn't ended, and starts its program again with the same arguments, hence
// on the same ports. It doesn't wait for them to be open.
func (p *Process) Restart() {
	p.t.Helper()
	p.Kill()
	cmd := exec.Command(p.cmd.Path, p.cmd.Args[1:]...)
	cmd.Dir = p.cmd.Dir
	p.run(cmd, p.cmd.Env)
}

// Output is what the process has printed so far.
func (p *Process) Output() string { return p.output.String() }

// Pid is the process's number.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Signal sends a signal, such as SIGSTOP and SIGCONT to freeze and thaw. After SIGSTOP it waits until all of the
// process stands still: a thread may go on for a while.
func (p *Process) Signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatalf("signal %s: %v", sig, err)
	}
	if sig == syscall.SIGSTOP {
		Eventually(p.t, "the process stands still", p.frozen)
	}
}

// frozen tells whether all threads are stopped, from their state behind the name in parentheses.
func (p *Process) frozen() bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.Pid()))
	if err != nil || len(threads) == 0 {
		return false
	}
	for _, stat := range threads {
		text, err := os.ReadFile(stat)
		if err != nil {
			return false
		}
		if i := bytes.LastIndexByte(text, ')'); i < 0 || !bytes.HasPrefix(text[i:], []byte(") T")) {
			return false
		}
	}
	return true
}

// Kill ends the process at once, frozen or not, and waits for its end.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.exited
}

// End ends the process by SIGTERM, if it hasn't ended, and returns its exit code.
func (p *Process) End() int {
	p.t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	return p.Wait()
}

// Wait waits for the process to end by itself and returns its exit code.
func (p *Process) Wait() int {
	p.t.Helper()
	select {
	case <-p.exited:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		p.t.Fatalf("%s did not end within %s; it printed:\n%s", p.cmd.Path, patience, p.Output())
		return 0
	}
}

// Eventually polls until ok returns true, and fails the test if that takes too long.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("waited %s in vain: %s", patience, what)
		}
	}
}

// The ports that servers of tests get: below those that the system gives to outgoing connections, one of which
// could take a port between its choice and its use.
const (
	firstPort = 12_000
	ports     = 20_000
)

// nextPort begins where those of other processes, which run tests at the same time, probably don't.
var nextPort atomic.Int64

// AwayFromMidnight waits for a new day if one is about to begin: it would end the windows that a test counts in. Where a Redis
// or a service is started here, that has been waited for.
func AwayFromMidnight(t testing.TB) {
	t.Helper()
	const day, test = 24 * time.Hour, 45 * time.Second
	midnight := time.Now().Add(test).Truncate(day) // in the past, unless the next one is near
	Eventually(t, "a new day has begun", func() bool { return time.Now().After(midnight) })
}

// FreePort returns a loopback port that nobody listens on, and that this process hasn't returned before.
func FreePort(t testing.TB) int {
	t.Helper()
	nextPort.CompareAndSwap(0, int64(os.Getpid())*7919)
	for range ports {
		port := firstPort + int(nextPort.Add(1)%ports)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			_ = l.Close() // only its number matters
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

// Redis is a redis-server.
type Redis struct {
	*Process
	Addr string
}

// StartRedis starts a redis-server without persistence on a free port, with further options as on its
// command line.
func StartRedis(t testing.TB, options ...string) *Redis {
	t.Helper()
	return startRedis(t, nil, options...)
}

func startRedis(t testing.TB, env []string, options ...string) *Redis {
	t.Helper()
	AwayFromMidnight(t)
	port := FreePort(t)
	args := append([]string{
		"--port", fmt.Sprint(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", t.TempDir(),
		"--repl-diskless-sync-delay", "0",
	}, options...)
	r := &Redis{
		Process: Start(t, env, find(t, "REDIS_SERVER_BIN", "redis-server"), args...),
		Addr:    fmt.Sprintf("127.0.0.1:%d", port),
	}
	Eventually(t, "redis-server listens on "+r.Addr, func() bool { return accepts(r.Addr) })
	return r
}

// URL is the server's address as --redis takes it.
func (r *Redis) URL() string { return "redis://" + r.Addr }

// Client returns a client of the server, closed at the test's end.
func (r *Redis) Client() *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: r.Addr})
	r.t.Cleanup(func() { _ = c.Close() })
	return c
}

// Envoy starts a real Envoy with the given bootstrap, and returns when its listeners are there: the
// bootstrap's admin listens on adminPort. What access logs write is seen at once.
func Envoy(t testing.TB, bootstrap string, adminPort int) *Process {
	t.Helper()
	file := filepath.Join(t.TempDir(), "envoy.yaml")
	if err := os.WriteFile(file, []byte(bootstrap), 0o600); err != nil {
		t.Fatal(err)
	}
	p := Start(t, nil, EnvoyBinary(t), "--config-path", file, "--concurrency", "1", "--use-dynamic-base-id",
		"--log-level", "warning", "--disable-hot-restart", "--file-flush-interval-msec", "50")
	url := fmt.Sprintf("http://127.0.0.1:%d/ready", adminPort)
	Eventually(t, "Envoy is ready", func() bool { return answers(url) })
	return p
}

// EnvoyBinary is where the real Envoy is.
func EnvoyBinary(t testing.TB) string {
	t.Helper()
	return find(t, "ENVOY_BIN", filepath.Join(Root(), ".cache", "envoy-1.40.0", "envoy"))
}

func find(t testing.TB, variable, name string) string {
	t.Helper()
	if path := os.Getenv(variable); path != "" {
		name = path
	}
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("%s is needed: run scripts/test-deps, or say where it is by %s (%v)", name, variable, err)
	}
	return path
}

// Root is the repository's top directory.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..")
}

// Service is a running envoy-rls.
type Service struct {
	*Process
	GRPC, HTTP, Admin string // host:port
}

// StartService starts `envoy-rls serve` on free loopback ports with further arguments, and returns once it
// is ready.
func StartService(t testing.TB, args ...string) *Service {
	t.Helper()
	return StartBinary(t, Binary(t), args...)
}

// StartBinary is StartService of another build.
func StartBinary(t testing.TB, binary string, args ...string) *Service {
	t.Helper()
	s := Launch(t, nil, binary, args...)
	Eventually(t, "envoy-rls is ready", func() bool { return answers("http://" + s.HTTP + "/readyz") })
	return s
}

// LaunchService is StartService without waiting for more than open ports, with variables of its own.
func LaunchService(t testing.TB, env []string, args ...string) *Service {
	t.Helper()
	return Launch(t, env, Binary(t), args...)
}

// Launch is LaunchService for another build, or another name.
func Launch(t testing.TB, env []string, binary string, args ...string) *Service {
	t.Helper()
	AwayFromMidnight(t)
	grpc, web, admin := FreePort(t), FreePort(t), FreePort(t)
	ports := []string{
		"HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1",
		fmt.Sprint("GRPC_PORT=", grpc), fmt.Sprint("PORT=", web), fmt.Sprint("DEBUG_PORT=", admin), "DRAIN_DELAY=0s",
	}
	s := &Service{
		Process: Start(t, append(ports, env...), binary, append([]string{"serve"}, args...)...),
		GRPC:    fmt.Sprintf("127.0.0.1:%d", grpc),
		HTTP:    fmt.Sprintf("127.0.0.1:%d", web),
		Admin:   fmt.Sprintf("127.0.0.1:%d", admin),
	}
	Eventually(t, "envoy-rls listens", func() bool { return accepts(s.GRPC) })
	return s
}

var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "envoy-rls-test-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "envoy-rls")
	cmd := exec.Command("go", "build", "-o", path, "./cmd/envoy-rls")
	cmd.Dir = Root()
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
})

// Binary builds envoy-rls, once, and returns its path. Main removes it.
func Binary(t testing.TB) string {
	t.Helper()
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	built.Store(path, true)
	return path
}

var built sync.Map

// Main runs a package's tests and removes what Binary built; it is for TestMain.
func Main(m *testing.M) int {
	code := m.Run()
	built.Range(func(path, _ any) bool {
		_ = os.RemoveAll(filepath.Dir(fmt.Sprint(path))) // a temporary directory
		return true
	})
	return code
}

func accepts(addr string) bool {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false
	}
	return errors.Join(c.Close()) == nil
}

func answers(url string) bool {
	client := http.Client{Timeout: time.Second}
	r, err := client.Get(url)
	if err != nil {
		return false
	}
	_ = r.Body.Close() // its status is enough
	return r.StatusCode == http.StatusOK
}

// buffer is a bytes.Buffer for one writer and readers.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// String is what was written so far.
func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
