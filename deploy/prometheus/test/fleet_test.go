package monitoring

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// fleet is replicas over one Redis, whom clients ask, and a Prometheus that watches them.
type fleet struct {
	*prometheus
	redis    *proctest.Redis
	plane    *proctest.ControlPlane // nil: rules are files
	token    string                 // the file of a token; "" is none
	replicas []*replica
	usual    func(*fleet) // what clients ask in a step of the clock
	turn     int
}

// replica is one of them.
type replica struct {
	*proctest.Service
	dir    string // where it runs; it has rules of its own in rules, whose path is the same for all, as in pods
	client ratelimit.RateLimitServiceClient
}

// rulesOfUsual are good for all that is usual, and have a bound of values.
var rulesOfUsual = map[string]string{
	"shop": `domain: shop
descriptors:
  - {key: user, rate_limit: {unit: year, requests_per_unit: 1000000}}
  - {key: address, max_values: 100, rate_limit: {unit: year, requests_per_unit: 1000000}}
`,
	"demo": `domain: demo
descriptors:
  - {key: user, rate_limit: {unit: year, requests_per_unit: 1000000}}
`,
}

// startFleet starts so many replicas, with callers who stay below their limits.
func startFleet(t *testing.T, replicas int, args ...string) *fleet {
	t.Helper()
	f := &fleet{prometheus: newPrometheus(t), redis: proctest.StartRedis(t), usual: usualCalls}
	for range replicas {
		f.add(args...)
	}
	return f
}

func usualCalls(f *fleet) {
	f.ask(20, "shop", "user")
	f.ask(10, "demo", "user")
}

// add starts a further replica.
func (f *fleet) add(args ...string) *replica {
	f.t.Helper()
	r := &replica{dir: f.t.TempDir()}
	if err := os.Mkdir(filepath.Join(r.dir, "rules"), 0o755); err != nil {
		f.t.Fatal(err)
	}
	for name, text := range rulesOfUsual {
		r.write(f.t, name, text)
	}
	start := filepath.Join(r.dir, "start")
	script := fmt.Sprintf("#!/bin/sh\ncd '%s' && exec '%s' \"$@\"\n", r.dir, proctest.Binary(f.t))
	if err := os.WriteFile(start, []byte(script), 0o755); err != nil { //nolint:gosec // it is run
		f.t.Fatal(err)
	}
	r.Service = proctest.StartBinary(f.t, start, append([]string{
		"--rules=rules", "--redis=" + f.redis.URL(), "--store-timeout=5s", // a busy machine is no outage
	}, args...)...)
	secured := insecure.NewCredentials()
	if slices.Contains(args, "--grpc-tls") {
		secured = credentials.NewTLS(&tls.Config{InsecureSkipVerify: true}) //nolint:gosec // certificates are not what is tested
	}
	conn, err := grpc.NewClient(r.GRPC, grpc.WithTransportCredentials(secured))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = conn.Close() }) // the service may be gone
	r.client = ratelimit.NewRateLimitServiceClient(conn)
	f.targets[fmt.Sprint("replica-", len(f.replicas))] = "http://" + r.HTTP + "/metrics"
	f.replicas = append(f.replicas, r)
	return r
}

// write replaces a rule file in one step, as a mounted ConfigMap does.
func (r *replica) write(t *testing.T, domain, text string) {
	t.Helper()
	name := filepath.Join(r.dir, "rules", domain+".yaml")
	if err := os.WriteFile(name+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		t.Fatal(err)
	}
}

// push gives replicas other rules of shop, and waits until they have read them.
func (f *fleet) push(text string, replicas ...*replica) {
	f.t.Helper()
	for _, r := range replicas {
		before := r.loads()
		r.write(f.t, "shop", text)
		proctest.Eventually(f.t, "the rules are read", func() bool { return r.loads() > before })
	}
}

func (r *replica) loads() float64 {
	return r.Metric("envoy_rls_config_reloads_total") + r.Metric("envoy_rls_config_reload_failures_total")
}

// patience is how long callers wait, who don't leave.
const patience = 10 * time.Second

// ask has clients ask the replicas in turn. Whatever they answer, and whether, is what is watched.
func (f *fleet) ask(calls int, domain, key string) {
	for range calls {
		f.turn++
		f.replicas[f.turn%len(f.replicas)].ask(patience, domain, descriptor(key, "ann"))
	}
}

func (r *replica) ask(wait time.Duration, domain string, d *common.RateLimitDescriptor) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	_, _ = r.client.ShouldRateLimit(ctx, &ratelimit.RateLimitRequest{Domain: domain, Descriptors: []*common.RateLimitDescriptor{d}}) // as said of fleet.ask
}

func descriptor(key, value string) *common.RateLimitDescriptor {
	return &common.RateLimitDescriptor{Entries: []*common.RateLimitDescriptor_Entry{{Key: key, Value: value}}}
}

// pass lets time pass in steps, each with what is usual.
func (f *fleet) pass(d, step time.Duration) {
	f.t.Helper()
	for range d / step {
		f.usual(f)
		f.step(step)
	}
}
