package xds

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
	"github.com/envoy-rls/envoy-rls/pkg/certs"
	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
)

// watched is a Client that runs, and what it told of.
type watched struct {
	t      *testing.T
	loader *descriptors.Loader

	mu       sync.Mutex
	versions []string // accepted
	refused  []string
	lost     []error
}

// run runs a client of a server until the test's end.
func run(t *testing.T, o Options) *watched {
	t.Helper()
	w := &watched{t: t, loader: descriptors.NewLoader(descriptors.Options{})}
	o.NodeID, o.Backoff = "node", Backoff{Initial: time.Millisecond, Connect: time.Millisecond, Max: 50 * time.Millisecond}
	if o.MaxMessage == 0 {
		o.MaxMessage = 64 << 20
	}
	if o.Keepalive == 0 {
		o.Keepalive, o.KeepaliveTimeout = time.Hour, time.Hour
	}
	o.Accept, o.Refused, o.Lost, o.Connected = w.accept, w.refuse, w.lose, func() {}
	goroutinesEnded := proctest.Goroutines(t)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		New(o).Run(ctx)
		close(ended)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		goroutinesEnded()
	})
	return w
}

func (w *watched) accept(s *Set) []descriptors.Problem {
	rules, problems := w.loader.LoadSet(s.Files)
	w.mu.Lock()
	defer w.mu.Unlock()
	if rules != nil {
		w.versions = append(w.versions, s.Version)
	}
	return problems
}

func (w *watched) refuse(version string, problems []descriptors.Problem) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refused = append(w.refused, version+" "+words(problems))
}

func (w *watched) lose(err error, _ time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost = append(w.lost, err)
}

// loses waits until a stream ends with an error that is so.
func (w *watched) loses(is func(error) bool) {
	w.t.Helper()
	proctest.Eventually(w.t, "a stream is lost", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return slices.ContainsFunc(w.lost, is)
	})
}

func says(text string) func(error) bool {
	return func(err error) bool { return strings.Contains(err.Error(), text) }
}

const bad = `{"name": "shop", "domain": "shop", "descriptors": [{"key": "user", "rate_limit": {"requests_per_unit": 1}}]}`

func TestASetIsAcknowledgedOrRefusedWithTheReason(t *testing.T) {
	plane := proctest.StartControlPlane(t)
	w := run(t, Options{
		Server: plane.Addr, Metadata: map[string]string{"zone": "a"}, Headers: map[string]string{"x-token": "secret"},
	})
	plane.Set("node", "1", proctest.Resource("shop", 1))
	ack := plane.Acked("1")
	if ack.GetNode().GetId() != "node" || ack.GetNode().GetMetadata().GetFields()["zone"].GetStringValue() != "a" ||
		ack.GetTypeUrl() != typeURL || len(ack.GetResourceNames()) != 0 {
		t.Errorf("the client asks %v", ack)
	}
	if got := plane.Headers().Get("x-token"); len(got) != 1 || got[0] != "secret" {
		t.Errorf("the header is %q", got)
	}
	plane.Set("node", "2", proctest.Resource("bank", 1), bad)
	const reason = "resource shop: shop.user.rate_limit: unit is missing; write second, minute, hour, day, week, month or year"
	if got := plane.Nacked("1"); got != reason {
		t.Errorf("the reason is %q", got)
	}
	// The control plane sends at once again what was refused. That doesn't keep the client busy.
	proctest.Eventually(t, "the refused set is refused again", func() bool { return nacks(plane) > 1 })
	plane.Set("node", "3", proctest.Resource("shop", 3))
	plane.Acked("3")
	if n := nacks(plane); n > 6 {
		t.Errorf("%d NACKs of one set", n)
	}
	plane.Set("node", "4") // none at all is a set, too
	plane.Acked("4")
	w.mu.Lock()
	defer w.mu.Unlock()
	if fmt.Sprint(w.versions) != "[1 3 4]" || len(w.refused) != 1 || w.refused[0] != "2 "+reason {
		t.Errorf("accepted %q, refused %q", w.versions, w.refused)
	}
}

func nacks(plane *proctest.ControlPlane) (n int) {
	for _, r := range plane.Requests() {
		if r.GetErrorDetail() != nil {
			n++
		}
	}
	return n
}

func TestANewStreamBeginsWithTheVersionThatWasAccepted(t *testing.T) {
	plane := proctest.StartControlPlane(t)
	w := run(t, Options{Server: plane.Addr})
	plane.Set("node", "1", proctest.Resource("shop", 1))
	plane.Acked("1")
	plane.Set("node", "2", bad)
	plane.Nacked("1")
	plane.Stop()
	w.loses(says("connection refused"))
	before := len(plane.Requests())
	plane.Start()
	plane.Set("node", "3", proctest.Resource("shop", 3))
	plane.Acked("3")
	first := plane.Requests()[before]
	if first.GetVersionInfo() != "1" || first.GetResponseNonce() != "" || first.GetErrorDetail() != nil {
		t.Errorf("the first request of the second stream is %v", first)
	}
}

// rawPlane sends responses as they are, one after each request.
type rawPlane struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	responses []*discovery.DiscoveryResponse
	requests  chan *discovery.DiscoveryRequest
}

func (p *rawPlane) StreamAggregatedResources(s grpc.BidiStreamingServer[discovery.DiscoveryRequest, discovery.DiscoveryResponse]) error {
	for i := 0; ; i++ {
		r, err := s.Recv()
		if err != nil {
			return err
		}
		p.requests <- r
		if i < len(p.responses) {
			if err := s.Send(p.responses[i]); err != nil {
				return err
			}
		}
	}
}

func (p *rawPlane) start(t *testing.T) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	discovery.RegisterAggregatedDiscoveryServiceServer(g, p)
	go func() { _ = g.Serve(l) }() // until Stop
	t.Cleanup(g.Stop)
	return l.Addr().String()
}

func TestResourcesThatAreNoneAreRefused(t *testing.T) {
	good := response(t, "1", resource(t, proctest.Resource("shop", 1)))
	other, broken := response(t, "2", resource(t, proctest.Resource("shop", 2))), response(t, "3")
	other.Resources = append(other.Resources, &anypb.Any{TypeUrl: "type.googleapis.com/envoy.config.listener.v3.Listener"})
	broken.Resources = []*anypb.Any{{TypeUrl: typeURL, Value: []byte{0xff}}}
	p := &rawPlane{responses: []*discovery.DiscoveryResponse{good, other, broken}, requests: make(chan *discovery.DiscoveryRequest, 10)}
	w := run(t, Options{Server: p.start(t)})
	for i, want := range []string{
		"", "",
		`resource 2 of 2: it is of type "type.googleapis.com/envoy.config.listener.v3.Listener", and not ` + typeURL,
		"resource 1 of 1: not a RateLimitConfig: ",
	} {
		r := <-p.requests
		if got := r.GetErrorDetail().GetMessage(); want == "" && got != "" || !strings.HasPrefix(got, want) {
			t.Errorf("request %d: %q, want %q", i, got, want)
		}
		if i > 0 && r.GetVersionInfo() != "1" || i > 0 && r.GetResponseNonce() != fmt.Sprint("n", i) {
			t.Errorf("request %d is %v", i, r)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.refused) != 2 {
		t.Errorf("told of %q", w.refused)
	}
}

func TestALongMessageIsTakenUpToTheBound(t *testing.T) {
	plane := proctest.StartControlPlane(t)
	var long strings.Builder
	long.WriteString(`{"name": "shop", "domain": "shop", "descriptors": [`)
	for i := range 4_500 {
		fmt.Fprintf(&long, `{"key": "httproute/default/r%d", "value": "%s", "rate_limit": {"unit": "DAY", "requests_per_unit": 1}},`, i, strings.Repeat("x", 1000))
	}
	plane.Set("node", "1", strings.TrimSuffix(long.String(), ",")+"]}")
	run(t, Options{Server: plane.Addr})
	plane.Acked("1")
	run(t, Options{Server: plane.Addr, MaxMessage: 1 << 20}).loses(func(err error) bool { return errors.Is(err, ErrMessageTooLong) })
}

// TestAControlPlaneThatHangsIsLeft has one behind a proxy that holds all bytes up.
func TestAControlPlaneThatHangsIsLeft(t *testing.T) {
	plane := proctest.StartControlPlane(t, grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second}))
	plane.Set("node", "1", proctest.Resource("shop", 1))
	proxy := proctest.StartProxy(t, plane.Addr, 1)
	w := run(t, Options{Server: proxy.Addr, Keepalive: 10 * time.Second, KeepaliveTimeout: time.Second})
	plane.Acked("1")
	proxy.Hold()
	w.loses(says("keepalive ping failed"))
	proxy.Release()
	plane.Set("node", "2", proctest.Resource("shop", 2))
	plane.Acked("2")
}

func TestWaitsGrowUpToTheLongestAndAreSpread(t *testing.T) {
	b := Backoff{Initial: 2 * time.Second, Connect: time.Second, Max: 10 * time.Second}
	for failures, want := range []time.Duration{2, 1, 2, 4, 8, 10, 10} {
		if got := b.after(failures); got != want*time.Second {
			t.Errorf("after %d: %s", failures, got)
		}
	}
	if got := b.after(1 << 30); got != b.Max {
		t.Errorf("after very many: %s", got)
	}
	b.Spread = 0.5
	seen := map[time.Duration]bool{}
	for range 100 {
		got := b.after(3)
		seen[got] = true
		if got < 2*time.Second || got > 6*time.Second {
			t.Errorf("4s by a half is %s", got)
		}
	}
	if len(seen) < 50 {
		t.Errorf("%d different waits", len(seen))
	}
}

// TestFilesOfTLSAreReadForEachConnection begins with a client's certificate that the server doesn't trust.
func TestFilesOfTLSAreReadForEachConnection(t *testing.T) {
	a, stranger := proctest.NewAuthority(t), proctest.NewAuthority(t)
	a.Sign("server", func(c *x509.Certificate) { c.DNSNames = []string{"envoy-gateway"} })
	stranger.Sign("client")
	copyFile(t, stranger.File("client.crt"), a.File("client.crt"))
	copyFile(t, stranger.File("client.key"), a.File("client.key"))
	plane := proctest.StartControlPlane(t, a.MutualTLS("server"))
	plane.Set("node", "1", proctest.Resource("shop", 1))
	files := certs.Client{
		Authorities: certs.NewAuthorities(a.File("ca.crt"), nil), Certificate: certs.NewPair(a.File("client.crt"), a.File("client.key"), nil),
		ServerName: "envoy-gateway",
	}
	w := run(t, Options{Server: plane.Addr, TLS: &files})
	w.loses(func(error) bool { return true })
	a.Sign("client")
	plane.Acked("1")

	otherName, noCA, noFile := files, files, files
	otherName.ServerName = "somebody-else"
	run(t, Options{Server: plane.Addr, TLS: &otherName}).loses(says("certificate is valid for envoy-gateway, not somebody-else"))
	noCA.Authorities = nil
	run(t, Options{Server: plane.Addr, TLS: &noCA}).loses(says("unknown authority"))
	noFile.Certificate = certs.NewPair(a.File("nowhere"), a.File("client.key"), nil)
	run(t, Options{Server: plane.Addr, TLS: &noFile}).loses(says("reading the client's certificate"))
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, data, 0o600); err != nil {
		t.Fatal(err)
	}
}
