package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// parts are what the demo runs. They end with ctx; one that ends before says so.
type parts struct {
	ctx     context.Context
	ended   chan error
	running sync.WaitGroup
}

// startAll builds and starts envoy-rls, the upstream and Envoy, and returns Envoy's version.
func (s *settings) startAll(p *parts, root, dir string) (string, error) {
	envoy, version, err := findEnvoy(p.ctx, root)
	if err != nil {
		return "", err
	}
	bootstrap, err := s.bootstrap(filepath.Join(root, "deploy", "envoy.yaml"), dir)
	if err != nil {
		return "", err
	}
	binary := filepath.Join(dir, "envoy-rls")
	build := exec.CommandContext(p.ctx, "go", "build", "-o", binary, "./cmd/envoy-rls")
	build.Dir = root
	if text, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building envoy-rls: %w\n%s", err, text)
	}
	p.serve(s.address("upstream-port"))
	port := func(flag, name string) string { return fmt.Sprintf("--%s=%d", flag, *s.ports[name]) }
	p.start("envoy-rls", exec.CommandContext(p.ctx, binary, "serve", "--store=memory",
		"--rules="+filepath.Join(root, "config", "demo.yaml"), "--host=127.0.0.1", "--grpc-host=127.0.0.1",
		port("port", "http-port"), port("grpc-port", "grpc-port"), port("admin-port", "admin-port"), "--drain-delay=0s"))
	p.start("Envoy", exec.CommandContext(p.ctx, envoy, "--config-path", bootstrap, "--concurrency", "1",
		"--use-dynamic-base-id", "--disable-hot-restart", "--log-level", "warning"))
	return version, nil
}

// findEnvoy returns Envoy's path and version.
func findEnvoy(ctx context.Context, root string) (path, version string, err error) {
	if path = os.Getenv("ENVOY_BIN"); path == "" {
		path = filepath.Join(root, ".cache", "envoy-1.40.0", "envoy")
	}
	text, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return "", "", fmt.Errorf("no Envoy: run scripts/test-deps envoy, or say where it is by ENVOY_BIN (%w)", err)
	}
	_, version, _ = strings.Cut(string(text), "version: ") // "<commit>/1.40.0/Clean/…"
	_, version, _ = strings.Cut(version, "/")
	version, _, _ = strings.Cut(version, "/")
	return path, version, nil
}

var portValue = regexp.MustCompile(`port_value: \d+`)

// bootstrap writes deploy/envoy.yaml with other ports and another timeout, if there are any.
func (s *settings) bootstrap(from, dir string) (string, error) {
	text, err := os.ReadFile(from)
	if err != nil {
		return "", err
	}
	text = portValue.ReplaceAllFunc(text, func(old []byte) []byte {
		for _, p := range portFlags {
			if string(old) == "port_value: "+strconv.Itoa(p.number) {
				return fmt.Appendf(nil, "port_value: %d", *s.ports[p.name])
			}
		}
		return old
	})
	if s.timeout != "" {
		text = bytes.ReplaceAll(text, []byte("timeout: 0.05s"), []byte("timeout: "+s.timeout))
	}
	to := filepath.Join(dir, "envoy.yaml")
	return to, os.WriteFile(to, text, 0o600)
}

// start runs a program until ctx ends. Ctrl-C is left to the demo: the program has a process group of its own.
func (p *parts) start(name string, cmd *exec.Cmd) {
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	p.running.Go(func() {
		err := cmd.Run()
		if err == nil {
			err = errors.New("exit status 0")
		}
		p.ended <- fmt.Errorf("%s has ended: %w; it printed:\n%s", name, err, output.String())
	})
}

// serve runs the upstream until ctx ends.
func (p *parts) serve(address string) {
	server := &http.Server{
		Addr:              address,
		ReadHeaderTimeout: time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "hello from the upstream\n") // the client is gone if it fails
		}),
	}
	context.AfterFunc(p.ctx, func() { _ = server.Close() }) // the demo ends
	p.running.Go(func() { p.ended <- fmt.Errorf("the upstream has ended: %w", server.ListenAndServe()) })
}

// await polls until ok returns true, and fails if a part ends before, or ctx, or patience.
func (p *parts) await(what string, ok func() bool) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	patience := time.After(20 * time.Second)
	for !ok() {
		select {
		case <-tick.C:
		case err := <-p.ended:
			return err
		case <-p.ctx.Done():
			return p.ctx.Err()
		case <-patience:
			return fmt.Errorf("waited in vain for %s", what)
		}
	}
	return nil
}
