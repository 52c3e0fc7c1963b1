package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// server answers now.
type server struct {
	address   string
	admin     string // where its profiles are; empty if there are none
	redis     string // where its Redis is; empty if it has none
	processes []Process
	children  []*child // in the order of their starts; none if the server is somebody else's
	workload  *Workload
	counts    bool                                 // so there are counters to be made
	open      func(string, int) (transport, error) // nil is gRPC
}

// stop ends what was started for the server, last first.
func (s *server) stop() error {
	var errs []error
	for _, child := range slices.Backward(s.children) {
		errs = append(errs, child.stop())
	}
	return errors.Join(errs...)
}

// fill makes the counters of the workload, if the server has any.
func (s *server) fill(ctx context.Context) error {
	if !s.counts {
		return nil
	}
	return s.workload.fillAt(ctx, s.address)
}

// trial is one of the server, with its own workload.
func (s *server) trial(pressure Pressure, long time.Duration) Trial {
	return Trial{
		Target:    s.address,
		Workload:  s.workload,
		Pressure:  pressure,
		Duration:  long,
		Processes: s.processes,
		Open:      s.open,
	}
}

// rig starts servers. Whatever they write goes to dir, which also has the rules.
type rig struct {
	dir  string
	self string // this program, for the no-op
}

// newRig makes a rig with a directory of its own, which is the caller's to remove.
func newRig() (*rig, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	dir, err := os.MkdirTemp("", "envoy-rls-bench-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for servers: %w", err)
	}
	return &rig{dir: dir, self: self}, nil
}

// rules writes those of a scenario and gives their directory.
func (r *rig) rules(of Scenario) (string, error) {
	dir, rules := filepath.Join(r.dir, "rules"), rulesFile
	if of.Rules != nil {
		dir, rules = filepath.Join(r.dir, of.Name), of.Rules
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("write the rules: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "bench.yaml"), rules, 0o644); err != nil {
		return "", fmt.Errorf("write the rules: %w", err)
	}
	return dir, nil
}

// run starts commands in their order.
func (r *rig) run(ctx context.Context, commands ...command) (*server, error) {
	running := new(server)
	for _, command := range commands {
		command.dir = r.dir
		child, err := start(ctx, command)
		if err != nil {
			return nil, errors.Join(err, running.stop())
		}
		running.children = append(running.children, child)
		running.processes = append(running.processes, Process{command.name, child.process.Process.Pid})
	}
	return running, nil
}

// noop starts the floor.
func (r *rig) noop(ctx context.Context, workload *Workload) (*server, error) {
	ports, err := freePorts(1)
	if err != nil {
		return nil, err
	}
	address := loopback(ports[0])
	running, err := r.run(ctx, command{
		name:  "noop",
		argv:  []string{r.self, "noop", "--listen", address},
		ready: accepts(address),
	})
	if err != nil {
		return nil, err
	}
	running.address, running.workload = address, workload
	return running, nil
}

func loopback(port string) string { return net.JoinHostPort("127.0.0.1", port) }

// freePorts finds ports that nobody listens on. Another program may take one before it is used; then a server does not
// start, and says so.
func freePorts(count int) ([]string, error) {
	var ports []string
	for range count {
		listener, err := net.Listen("tcp", loopback("0"))
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer listener.Close() // only now, so that no port is found twice
		_, port, err := net.SplitHostPort(listener.Addr().String())
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		ports = append(ports, port)
	}
	return ports, nil
}
