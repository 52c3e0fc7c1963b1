package main

import "context"

// envoyRLS starts a build of the service.
type envoyRLS struct {
	rig     *rig
	program string // its path
}

// serviceName is the process whose CPU time is envoy-rls's.
const serviceName = "envoy-rls"

// memory starts envoy-rls with counters of its own.
func (e envoyRLS) memory(ctx context.Context, workload *Workload) (*server, error) {
	store := []string{"--store", "memory"}
	if workload.Scenario.Counters > 0 {
		store = append(store, "--memory-limit", "4GiB")
	}
	return e.start(ctx, workload, store)
}

// redis starts envoy-rls and a Redis of its own.
func (e envoyRLS) redis(ctx context.Context, workload *Workload) (*server, error) {
	port, redis, err := redisServer()
	if err != nil {
		return nil, err
	}
	running, err := e.start(ctx, workload, []string{"--redis", "redis://" + loopback(port)}, redis)
	if err != nil {
		return nil, err
	}
	running.redis = loopback(port)
	return running, nil
}

// start starts what is needed before it, then the service.
func (e envoyRLS) start(ctx context.Context, workload *Workload, store []string, before ...command) (*server, error) {
	rules, err := e.rig.rules(workload.Scenario)
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	argv := []string{e.program, "serve",
		"--host", "127.0.0.1", "--port", ports[0],
		"--grpc-host", "127.0.0.1", "--grpc-port", ports[1],
		"--admin-port", ports[2], "--drain-delay", "0s", "--rules", rules}
	running, err := e.rig.run(ctx, append(before, command{
		name:  serviceName,
		argv:  append(argv, store...),
		env:   []string{"GOMEMLIMIT=" + memoryFor(workload)},
		ready: answersOK("http://" + loopback(ports[0]) + "/readyz"),
	})...)
	if err != nil {
		return nil, err
	}
	running.address, running.admin = loopback(ports[1]), loopback(ports[2])
	running.workload, running.counts = workload, true
	return running, nil
}

// memoryFor is the memory limit of the container that the service would run in, by which it sets its garbage collector:
// that of deploy/k8s, or for counters by the million one that they fit into.
func memoryFor(workload *Workload) string {
	if workload.Scenario.Counters > 0 {
		return "8GiB"
	}
	return "400MiB"
}
