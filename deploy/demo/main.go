// Command demo shows envoy-rls behind a real Envoy: it starts both with deploy/envoy.yaml and
// config/demo.yaml, and an upstream, sends a few requests, prints what clients see, and stays up.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// settings are the command line: ports by the names of their flags.
type settings struct {
	ports   map[string]*int
	timeout string
	once    bool
}

// portFlags are the ports that must be free; the bootstrap and envoy-rls have the same defaults.
var portFlags = []struct {
	name   string
	number int
	what   string
}{
	{"port", 10000, "Envoy, for clients"},
	{"envoy-admin-port", 9901, "Envoy's admin interface"},
	{"upstream-port", 18000, "the upstream"},
	{"grpc-port", 8081, "envoy-rls, for Envoy"},
	{"http-port", 8080, "envoy-rls, for probes and metrics"},
	{"admin-port", 6070, "envoy-rls's admin interface"},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintf(os.Stderr, "demo: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	s, err := parse(args)
	if err != nil {
		return err
	}
	if err := s.checkPorts(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "envoy-rls-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithCancel(ctx)
	p := &parts{ctx: ctx, ended: make(chan error, 3)}
	defer p.running.Wait()
	defer cancel()
	root, err := repository(ctx)
	if err != nil {
		return err
	}
	version, err := s.startAll(p, root, dir)
	if err != nil {
		return err
	}
	if err := s.show(p, out, version); err != nil || s.once {
		return err
	}
	fmt.Fprintf(out, "Envoy stays up. Try: curl -i -H 'x-user: eve' localhost:%d/      stop: Ctrl-C\n", *s.ports["port"])
	select {
	case err := <-p.ended:
		return err
	case <-ctx.Done():
		return nil
	}
}

func parse(args []string) (*settings, error) {
	s := &settings{ports: map[string]*int{}}
	f := flag.NewFlagSet("demo", flag.ContinueOnError)
	for _, p := range portFlags {
		s.ports[p.name] = f.Int(p.name, p.number, "`port` of "+p.what)
	}
	f.StringVar(&s.timeout, "timeout", "", "how long Envoy waits for an answer, as in 1s (default as in deploy/envoy.yaml)")
	f.BoolVar(&s.once, "once", false, "end after the requests")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unknown argument %q", f.Arg(0))
	}
	return s, nil
}

// checkPorts reports all ports that are taken.
func (s *settings) checkPorts() error {
	var errs []error
	for _, p := range portFlags {
		l, err := net.Listen("tcp", s.address(p.name))
		if err != nil {
			errs = append(errs, fmt.Errorf("port %d is needed by %s, and can't be had: %w; choose another by --%s",
				*s.ports[p.name], p.what, err, p.name))
			continue
		}
		_ = l.Close() // it could be opened
	}
	return errors.Join(errs...)
}

func (s *settings) address(name string) string {
	return fmt.Sprintf("127.0.0.1:%d", *s.ports[name])
}

// repository is the top directory of the module in which the demo was started.
func repository(ctx context.Context) (string, error) {
	path, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("asking go for the module: %w", err)
	}
	root := filepath.Dir(strings.TrimSpace(string(path)))
	if _, err := os.Stat(filepath.Join(root, "deploy", "envoy.yaml")); err != nil {
		return "", fmt.Errorf("start the demo inside the repository: %w", err)
	}
	return root, nil
}

// show waits until all parts work together, then sends requests and prints the answers.
func (s *settings) show(p *parts, out io.Writer, version string) error {
	url := "http://" + s.address("port") + "/"
	if err := p.await("the first answer through Envoy", func() bool {
		a, err := get(p.ctx, url, "warm-up")
		return err == nil && a.counted()
	}); err != nil {
		return err
	}
	// The limit of the demo's rules is by the minute, and starts anew with the next one.
	const needed = 5 * time.Second
	next := time.Now().Add(needed).Truncate(time.Minute)
	if err := p.await("the next minute", func() bool { return time.Now().After(next) }); err != nil {
		return err
	}
	fmt.Fprintf(out, "envoy %s :%d -> upstream :%d, rules config/demo.yaml\n", version, *s.ports["port"], *s.ports["upstream-port"])
	for _, user := range []string{"ann", "ann", "ann", "ann", "bob", ""} {
		a, err := get(p.ctx, url, user)
		if err != nil {
			return err
		}
		fmt.Fprintln(out, a.line(user))
	}
	return nil
}

// answer is what a client sees.
type answer struct {
	status int
	header http.Header
}

func get(ctx context.Context, url, user string) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return answer{}, err
	}
	if user != "" {
		req.Header.Set("x-user", user)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return answer{resp.StatusCode, resp.Header}, err
}

// counted tells whether envoy-rls has answered, with a limit.
func (a answer) counted() bool { return a.header.Get("x-ratelimit-limit") != "" }

func (a answer) line(user string) string {
	who, told := "x-user: "+user, []string{"x-ratelimit-limit", "x-ratelimit-remaining"}
	if a.status == http.StatusTooManyRequests {
		told = []string{"retry-after", "x-envoy-ratelimited"}
	}
	line := &strings.Builder{}
	if user == "" {
		who = "(no x-user)"
	}
	fmt.Fprintf(line, "GET /  %-11s   %d", who, a.status)
	switch {
	case user == "":
		line.WriteString("  without the header, Envoy sends no descriptor: no limit")
	case !a.counted():
		line.WriteString("  envoy-rls didn't answer in time, and Envoy lets the request pass")
	default:
		for _, name := range told {
			fmt.Fprintf(line, "  %s: %s", name, a.header.Get(name))
		}
	}
	return line.String()
}
