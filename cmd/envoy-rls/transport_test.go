package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/rogpeppe/go-internal/testscript"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

const spiffe = "spiffe://cluster.local/ns/edge/sa/envoy"

// securedBy are the variables by which gRPC speaks TLS with the certificate of "server".
func securedBy(a *proctest.Authority, more ...string) []string {
	return append(more, "GRPC_SERVER_USE_TLS=true", "GRPC_SERVER_TLS_CERT="+a.File("server.crt"), "GRPC_SERVER_TLS_KEY="+a.File("server.key"))
}

// securedClient asks with the certificate of a name, or of "" with none.
func securedClient(t *testing.T, addr string, server, client *proctest.Authority, name string) *grpc.ClientConn {
	t.Helper()
	files := clientTLS{CA: server.File("ca.crt")}
	if name != "" {
		files.Cert, files.Key = client.File(name+".crt"), client.File(name+".key")
	}
	secured, err := files.credentials()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(secured))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // the service may be gone
	return conn
}

func askOnce(ctx context.Context, conn *grpc.ClientConn) error {
	_, err := ratelimit.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, shopRequest("user"), grpc.WaitForReady(false))
	return err
}

// secureService starts a service in memory with variables, and returns when it is ready.
func secureService(t *testing.T, variables ...string) *proctest.Service {
	t.Helper()
	s := proctest.LaunchService(t, variables, "--rules="+writeRules(t), "--store=memory")
	proctest.Eventually(t, "it is ready", func() bool { return strings.Contains(s.Output(), "msg=ready") })
	return s
}

func TestOnlyTheRightClientsGetIn(t *testing.T) {
	ours, theirs := proctest.NewAuthority(t), proctest.NewAuthority(t)
	ours.Sign("server")
	signClients(t, ours)
	theirs.Sign("envoy")
	client := func(what string) (*proctest.Authority, string) {
		if name, ok := strings.CutPrefix(what, "their "); ok {
			return theirs, name
		}
		return ours, what
	}
	for _, c := range []struct {
		service   string
		variables []string
		admitted  string
		refused   string
	}{
		{
			"without a CA", []string{"GRPC_SERVER_TLS_CA_CERT=" + ours.File("ca.crt")},
			"|ip|their envoy|expired", "",
		},
		{
			// What the system trusts, it trusts for names of servers.
			"with a CA", []string{"GRPC_CLIENT_TLS_CACERT=" + ours.File("ca.crt"), "SSL_CERT_FILE=" + theirs.File("ca.crt")},
			"ip|dns|wildcard|uri", "|their envoy|expired|early|of-a-server",
		},
		{
			"with a DNS name", []string{"GRPC_CLIENT_TLS_CACERT=" + ours.File("ca.crt"), "GRPC_CLIENT_TLS_SAN=envoy.edge"},
			"dns|wildcard", "|ip|uri|their envoy|expired",
		},
		{
			"with an IP address", []string{"GRPC_CLIENT_TLS_CACERT=" + ours.File("ca.crt"), "GRPC_CLIENT_TLS_SAN=10.1.2.3"},
			"ip", "|dns|wildcard|uri",
		},
		{
			"with a URI", []string{"GRPC_CLIENT_TLS_CACERT=" + ours.File("ca.crt"), "GRPC_CLIENT_TLS_SAN=" + spiffe},
			"uri", "|ip|dns|wildcard|other-uri",
		},
		{
			"with several", []string{"GRPC_CLIENT_TLS_CACERT=" + ours.File("ca.crt"), "GRPC_CLIENT_TLS_SAN=10.1.2.3,envoy.edge," + spiffe},
			"ip|dns|wildcard|uri", "|other-uri|expired|their envoy",
		},
	} {
		t.Run(c.service, func(t *testing.T) {
			s, began := secureService(t, securedBy(ours, c.variables...)...), time.Now()
			for _, what := range strings.Split(c.admitted, "|") {
				a, name := client(what)
				if err := askOnce(t.Context(), securedClient(t, s.GRPC, ours, a, name)); err != nil {
					t.Errorf("the client %q: %v", what, err)
				}
			}
			if c.refused == "" {
				return
			}
			for _, what := range strings.Split(c.refused, "|") {
				a, name := client(what)
				if err := askOnce(t.Context(), securedClient(t, s.GRPC, ours, a, name)); status.Code(err) != codes.Unavailable {
					t.Errorf("the client %q: %v", what, err)
				}
			}
			proctest.Eventually(t, "all refusals are counted", func() bool { // a client may know before
				return int(s.Metric("envoy_rls_tls_handshake_failures_total")) > strings.Count(c.refused, "|")
			})
			s.End()
			if n := strings.Count(s.Output(), "client refused by TLS"); n < 1 || n > 1+int(time.Since(began)/sparingInterval) {
				t.Errorf("%d lines were written", n)
			}
		})
	}
}

// signClients signs certificates by what is special about them.
func signClients(t *testing.T, a *proctest.Authority) {
	t.Helper()
	uri := func(text string) func(*x509.Certificate) {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return func(c *x509.Certificate) { c.IPAddresses, c.URIs = nil, []*url.URL{u} }
	}
	a.Sign("ip", func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.IPv4(10, 1, 2, 3)} })
	a.Sign("dns", func(c *x509.Certificate) { c.DNSNames = []string{"other.edge", "envoy.edge"} })
	a.Sign("wildcard", func(c *x509.Certificate) { c.DNSNames = []string{"*.edge"} })
	a.Sign("uri", uri(spiffe))
	a.Sign("other-uri", uri(spiffe+"2"))
	a.Sign("expired", func(c *x509.Certificate) {
		c.DNSNames, c.NotAfter = []string{"envoy.edge"}, time.Now().Add(-time.Minute)
	})
	a.Sign("early", func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) })
	a.Sign("of-a-server", func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} })
}

func TestASecuredPortSpeaksNothingOld(t *testing.T) {
	a := proctest.NewAuthority(t)
	a.Sign("server")
	s := secureService(t, securedBy(a)...)
	plain := dial(t, s.GRPC)
	if err := askOnce(t.Context(), plain); status.Code(err) != codes.Unavailable {
		t.Errorf("a call without TLS: %v", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(readFile(t, a.File("ca.crt"))))
	for version, want := range map[uint16]bool{tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
		c, err := tls.Dial("tcp", s.GRPC, &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS10, MaxVersion: version, NextProtos: []string{"h2"}})
		if (err == nil) != want {
			t.Errorf("%s: %v", tls.VersionName(version), err)
		}
		if err == nil {
			_ = c.Close() // that there is one is enough
		}
	}
}

func readFile(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestCertificatesAreReplacedUnderLoadWithoutAFailedCall replaces the service's certificate, one file after the other, while
// each call opens a connection of its own and others have one that stays.
func TestCertificatesAreReplacedUnderLoadWithoutAFailedCall(t *testing.T) {
	a := proctest.NewAuthority(t)
	a.Sign("server")
	a.Sign("client")
	s := secureService(t, securedBy(a, "GRPC_CLIENT_TLS_CACERT="+a.File("ca.crt"))...)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var calls atomic.Int64
	var callers sync.WaitGroup
	ask := func(conn *grpc.ClientConn) {
		if err := askOnce(t.Context(), conn); err != nil {
			t.Errorf("call %d: %v", calls.Load(), err)
		}
		calls.Add(1)
	}
	for range 2 {
		stays := securedClient(t, s.GRPC, a, a, "client")
		secured := clientCredentials(t, a, "client")
		callers.Go(func() {
			for ctx.Err() == nil {
				ask(stays)
				conn, err := grpc.NewClient(s.GRPC, grpc.WithTransportCredentials(secured))
				if err != nil {
					t.Error(err)
					return
				}
				ask(conn)
				_ = conn.Close() // it has been used
			}
		})
	}
	for range 10 {
		before := calls.Load()
		a.Sign("server")
		proctest.Eventually(t, "there are calls", func() bool { return calls.Load() >= before+20 })
	}
	cancel()
	callers.Wait()
	if n := s.Metric("envoy_rls_tls_handshake_failures_total"); n != 0 {
		t.Errorf("%v handshakes failed", n)
	}
}

func clientCredentials(t *testing.T, a *proctest.Authority, name string) credentials.TransportCredentials {
	t.Helper()
	secured, err := (&clientTLS{CA: a.File("ca.crt"), Cert: a.File(name + ".crt"), Key: a.File(name + ".key")}).credentials()
	if err != nil {
		t.Fatal(err)
	}
	return secured
}

// TestABadCertificateIsToldOfAndTheOldOneStays also withdraws trust: an authority that is taken out admits nobody any more.
func TestABadCertificateIsToldOfAndTheOldOneStays(t *testing.T) {
	a, other := proctest.NewAuthority(t), proctest.NewAuthority(t)
	end := time.Now().Add(30 * time.Minute).Truncate(time.Second)
	a.Sign("server", func(c *x509.Certificate) { c.NotAfter = end })
	a.Sign("client")
	other.Sign("client")
	ca := filepath.Join(t.TempDir(), "ca.crt")
	write := func(file, text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(ca, readFile(t, a.File("ca.crt")))
	s := secureService(t, securedBy(a, "GRPC_CLIENT_TLS_CACERT="+ca)...)
	expects := func(what string, ours, theirs bool) {
		t.Helper()
		for authority, want := range map[*proctest.Authority]bool{a: ours, other: theirs} {
			if err := askOnce(t.Context(), securedClient(t, s.GRPC, a, authority, "client")); (err == nil) != want {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	expects("at first", true, false)
	const expiry = "envoy_rls_certificate_expiry_timestamp_seconds"
	if got := s.Metric(expiry, `which="server"`); got != float64(end.Unix()) {
		t.Errorf("the certificate expires at %v, want %v", got, end.Unix())
	}
	write(a.File("server.crt"), "half")
	expects("half a certificate", true, false)
	expects("half a certificate, again", true, false)
	if got := s.Metric(expiry, `which="server"`); got != float64(end.Unix()) {
		t.Errorf("with a bad certificate it expires at %v, want %v", got, end.Unix())
	}
	write(ca, readFile(t, other.File("ca.crt")))
	expects("another authority", false, true)
	write(ca, readFile(t, a.File("ca.crt"))+readFile(t, other.File("ca.crt")))
	expects("both authorities", true, true)
	s.End()
	if n := strings.Count(s.Output(), "server.crt: it holds no certificate in PEM"); n != 1 {
		t.Errorf("the bad certificate is told of %d times", n)
	}
}

// certify NAME... makes an authority, $CERTS/ca.crt, and certificates of it, $CERTS/NAME.crt with NAME.key.
func certify(ts *testscript.TestScript, neg bool, args []string) {
	t, ok := ts.Value(testKey{}).(testing.TB)
	if neg || !ok {
		ts.Fatalf("want names, and no !")
	}
	a := proctest.NewAuthority(t)
	for _, name := range args {
		a.Sign(name)
	}
	ts.Setenv("CERTS", a.Dir)
}

func TestARefusalSaysWhichNamesACertificateHas(t *testing.T) {
	u := &url.URL{Scheme: "spiffe", Host: "cluster.local", Path: "/ns/edge/sa/other"}
	c := &x509.Certificate{DNSNames: []string{"other.edge"}, IPAddresses: []net.IP{net.IPv4(10, 1, 2, 3)}, URIs: []*url.URL{u}}
	err := checkSAN(c, []string{"envoy.edge", spiffe})
	const want = `the client's certificate is for DNS ["other.edge"], IP [10.1.2.3], URI [spiffe://cluster.local/ns/edge/sa/other], ` +
		`and not for envoy.edge or spiffe://cluster.local/ns/edge/sa/envoy`
	if err == nil || err.Error() != want {
		t.Errorf("the error is %v, want %s", err, want)
	}
}
