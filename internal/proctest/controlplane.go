package proctest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	rlsconf "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"
)

// ControlPlane is a control plane of rules as Envoy Gateway has it: go-control-plane's snapshot cache behind the
// aggregated discovery service, and no other.
type ControlPlane struct {
	// Addr is where it listens, also after Stop and Start.
	Addr string

	t       testing.TB
	options []grpc.ServerOption
	cache   cache.SnapshotCache
	server  *grpc.Server // nil: stopped

	mu       sync.Mutex
	requests []*discovery.DiscoveryRequest
	headers  metadata.MD // of the last stream
}

// StartControlPlane starts one on a free port. The test's end ends it.
func StartControlPlane(t testing.TB, options ...grpc.ServerOption) *ControlPlane {
	t.Helper()
	c := &ControlPlane{t: t, Addr: fmt.Sprintf("127.0.0.1:%d", FreePort(t)), options: options}
	c.Start()
	t.Cleanup(c.Stop)
	return c
}

// Start starts it again, without any snapshot and on the same address.
func (c *ControlPlane) Start() {
	c.t.Helper()
	c.cache = cache.NewSnapshotCache(false, cache.IDHash{}, nil)
	c.server = grpc.NewServer(c.options...)
	discovery.RegisterAggregatedDiscoveryServiceServer(c.server, server.NewServer(context.Background(), c.cache, c.callbacks()))
	var l net.Listener
	Eventually(c.t, "the control plane listens", func() (ok bool) {
		var err error
		l, err = net.Listen("tcp", c.Addr)
		return err == nil
	})
	go func(s *grpc.Server) { _ = s.Serve(l) }(c.server) // until Stop
}

// Stop cuts all streams and refuses new ones.
func (c *ControlPlane) Stop() { c.server.Stop() }

func (c *ControlPlane) callbacks() server.Callbacks {
	return server.CallbackFuncs{
		StreamOpenFunc: func(ctx context.Context, _ int64, _ string) error {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.headers, _ = metadata.FromIncomingContext(ctx)
			return nil
		},
		StreamRequestFunc: func(_ int64, r *discovery.DiscoveryRequest) error {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.requests = append(c.requests, r)
			return nil
		},
	}
}

// Set gives a node a version of its rules, each resource in protobuf's JSON.
func (c *ControlPlane) Set(node, version string, resources ...string) {
	c.t.Helper()
	list := make([]types.Resource, len(resources))
	for i, text := range resources {
		r := &rlsconf.RateLimitConfig{}
		if err := protojson.Unmarshal([]byte(text), r); err != nil {
			c.t.Fatal(err)
		}
		list[i] = r
	}
	snapshot, err := cache.NewSnapshot(version, map[resource.Type][]types.Resource{resource.RateLimitConfigType: list})
	if err != nil {
		c.t.Fatal(err)
	}
	if err := c.cache.SetSnapshot(context.Background(), node, snapshot); err != nil {
		c.t.Fatal(err)
	}
}

// Requests are those of all streams so far.
func (c *ControlPlane) Requests() []*discovery.DiscoveryRequest {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.requests)
}

// Headers are those of the last stream.
func (c *ControlPlane) Headers() metadata.MD {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.headers
}

// answered waits for a request that is so.
func (c *ControlPlane) answered(what string, is func(*discovery.DiscoveryRequest) bool) *discovery.DiscoveryRequest {
	c.t.Helper()
	var found *discovery.DiscoveryRequest
	Eventually(c.t, what, func() bool {
		for _, r := range c.Requests() {
			if is(r) {
				found = r
			}
		}
		return found != nil
	})
	return found
}

// Acked waits for the ACK of a version.
func (c *ControlPlane) Acked(version string) *discovery.DiscoveryRequest {
	c.t.Helper()
	return c.answered("an ACK of version "+version, func(r *discovery.DiscoveryRequest) bool {
		return r.GetVersionInfo() == version && r.GetResponseNonce() != "" && r.GetErrorDetail() == nil
	})
}

// Nacked waits for a NACK while a version is in force, and returns its reason.
func (c *ControlPlane) Nacked(version string) string {
	c.t.Helper()
	return c.answered("a NACK beside version "+version, func(r *discovery.DiscoveryRequest) bool {
		return r.GetVersionInfo() == version && r.GetErrorDetail() != nil
	}).GetErrorDetail().GetMessage()
}

// MutualTLS has a server speak TLS 1.3 as Envoy Gateway does, with the authority's certificate of a name, to clients that
// have one of its certificates, too.
func (a *Authority) MutualTLS(name string) grpc.ServerOption {
	a.t.Helper()
	pair, err := tls.LoadX509KeyPair(a.File(name+".crt"), a.File(name+".key"))
	if err != nil {
		a.t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13,
	}))
}

// Resource is a resource with one limit of so many requests a day for each user.
func Resource(domain string, requests int) string {
	return fmt.Sprintf(`{"name": %q, "domain": %q, "descriptors": [{"key": "user", "rate_limit": {"unit": "DAY", "requests_per_unit": %d}}]}`,
		domain, domain, requests)
}
