package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// server answers now.
type server struct {
	address   string
	processes []Process
	children  []*child // in the order of their starts; none if the server is somebody else's
}

// stop ends what was started for the server, last first.
func (s *server) stop() error {
	var errs []error
	for _, child := range slices.Backward(s.children) {
		errs = append(errs, child.stop())
	}
	return errors.Join(errs...)
}

// contender is a kind of server in a comparison.
type contender struct {
	name  string
	start func(context.Context) (*server, error)
}

// rig starts servers. Whatever they write goes to dir, which also has the rules.
type rig struct {
	dir    string
	self   string // this program, for the no-op
	binary string // envoy-rls
}

// newRig makes a rig with a directory of its own, which is the caller's to remove.
func newRig(binary string) (*rig, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	dir, err := os.MkdirTemp("", "envoy-rls-bench-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for servers: %w", err)
	}
	r := &rig{dir: dir, self: self, binary: binary}
	if err := os.Mkdir(r.rules(), 0o755); err != nil {
		return r, fmt.Errorf("write the rules: %w", err)
	}
	if err := os.WriteFile(filepath.Join(r.rules(), "bench.yaml"), rulesFile, 0o644); err != nil {
		return r, fmt.Errorf("write the rules: %w", err)
	}
	return r, nil
}

func (r *rig) rules() string { return filepath.Join(r.dir, "rules") }

// run starts commands in their order; the last one answers at the address.
func (r *rig) run(ctx context.Context, address string, commands ...command) (*server, error) {
	running := &server{address: address}
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
func (r *rig) noop(ctx context.Context) (*server, error) {
	ports, err := freePorts(1)
	if err != nil {
		return nil, err
	}
	address := loopback(ports[0])
	return r.run(ctx, address, command{
		name:  "noop",
		argv:  []string{r.self, "noop", "--listen", address},
		ready: accepts(address),
	})
}

// memory starts envoy-rls with counters of its own.
func (r *rig) memory(ctx context.Context) (*server, error) {
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	return r.run(ctx, loopback(ports[1]), r.envoyRLS(ports, "--store", "memory"))
}

// redis starts envoy-rls and a Redis of its own, which keeps nothing.
func (r *rig) redis(ctx context.Context) (*server, error) {
	ports, err := freePorts(4)
	if err != nil {
		return nil, err
	}
	store := loopback(ports[3])
	return r.run(ctx, loopback(ports[1]),
		command{
			name: "redis-server",
			argv: []string{"redis-server", "--bind", "127.0.0.1", "--port", ports[3],
				"--save", "", "--appendonly", "no"},
			ready: pongs(store),
		},
		r.envoyRLS(ports, "--redis", "redis://"+store))
}

// envoyRLS is the service's command line. Its ports are those of HTTP, gRPC and administration.
func (r *rig) envoyRLS(ports []string, store ...string) command {
	argv := []string{r.binary, "serve",
		"--host", "127.0.0.1", "--port", ports[0],
		"--grpc-host", "127.0.0.1", "--grpc-port", ports[1],
		"--admin-port", ports[2], "--drain-delay", "0s", "--rules", r.rules()}
	return command{
		name:  "envoy-rls",
		argv:  append(argv, store...),
		ready: answersOK("http://" + loopback(ports[0]) + "/readyz"),
	}
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

// Extra is a server that somebody else started and ends.
type Extra struct {
	Name      string
	Address   string
	Processes []Process
}

// UnmarshalText reads name=host:port@pid,pid. The pids, with their @, may be left out: then no CPU time is counted.
func (e *Extra) UnmarshalText(text []byte) error {
	name, rest, found := strings.Cut(string(text), "=")
	if !found || name == "" {
		return fmt.Errorf("server %q is not name=host:port@pid,pid", text)
	}
	address, pids, counted := strings.Cut(rest, "@")
	if err := checkLoopback(address); err != nil {
		return err
	}
	*e = Extra{Name: name, Address: address}
	if !counted {
		return nil
	}
	for number := range strings.SplitSeq(pids, ",") {
		pid, err := strconv.Atoi(number)
		if err != nil || pid <= 0 {
			return fmt.Errorf("server %q: %q is not a pid", text, number)
		}
		e.Processes = append(e.Processes, Process{"pid " + number, pid})
	}
	return nil
}

func (e *Extra) start(context.Context) (*server, error) {
	return &server{address: e.Address, processes: e.Processes}, nil
}
