package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// What deploy/envoy.yaml says of the service's cluster, and the mistakes.
const (
	ofCluster    = "    - name: envoy-rls\n"
	tlsSocket    = ofCluster + "      transport_socket: {name: tls, typed_config: {\"@type\": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext}}\n"
	http2Options = "            http2_protocol_options: # gRPC is HTTP/2\n" +
		"              # Finds dead connections before a request has to.\n              connection_keepalive: {interval: 30s, timeout: 5s}\n"
	http1Options = "            http_protocol_options: {}\n"
)

// TestAnEnvoyThatCallsInAnotherProtocolIsToldOf has the real Envoy call the service by clusters with one mistake each.
func TestAnEnvoyThatCallsInAnotherProtocolIsToldOf(t *testing.T) {
	grpc := func(s *proctest.Service) string { return s.GRPC }
	web := func(s *proctest.Service) string { return s.HTTP }
	admin := func(s *proctest.Service) string { return s.Admin }
	for name, c := range map[string]struct {
		stands, mistake string // in deploy/envoy.yaml
		called          func(*proctest.Service) string
		says            string
	}{
		"HTTP/1":            {http2Options, http1Options, grpc, `a client speaks HTTP/1 to gRPC, which is HTTP/2" client=CLIENT mend="write explicit_http_config`},
		"TLS":               {ofCluster, tlsSocket, grpc, `a client speaks TLS to gRPC, which is plain" client=CLIENT mend="--grpc-tls `},
		"the port of HTTP":  {"", "", web, `a client calls gRPC at a port of HTTP" client=CLIENT mend="call GRPC"`},
		"the port of admin": {"", "", admin, `a client calls gRPC at a port of HTTP" client=CLIENT mend="call GRPC"`},
	} {
		t.Run(name, func(t *testing.T) {
			s := proctest.StartService(t, "--rules="+writeRules(t))
			request := startEnvoy(t, c.stands, c.mistake, c.called(s))
			says := strings.NewReplacer("CLIENT", `127\.0\.0\.1:\d+`, "GRPC", regexp.QuoteMeta(s.GRPC)).Replace(c.says)
			proctest.Eventually(t, "the log says "+says, func() bool {
				request()
				return regexp.MustCompile(says).MatchString(s.Output())
			})
			for range 10 {
				request()
			}
			s.End()
			if n := strings.Count(s.Output(), `msg="a client `); n != 1 {
				t.Errorf("%d lines were written", n)
			}
		})
	}
}

// startEnvoy starts an Envoy by deploy/envoy.yaml with something else in the place of what stands there, and the service at an
// address. What it returns makes a request, whose answer doesn't matter: there is no upstream.
func startEnvoy(t *testing.T, stands, instead, address string) (request func()) {
	t.Helper()
	bootstrap, err := os.ReadFile(filepath.Join(proctest.Root(), "deploy", "envoy.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(bootstrap), stands) {
		t.Fatalf("deploy/envoy.yaml has no %q", stands)
	}
	ingress, admin := proctest.FreePort(t), proctest.FreePort(t)
	_, port, _ := strings.Cut(address, ":")
	text := strings.NewReplacer("port_value: 9901", fmt.Sprint("port_value: ", admin), "port_value: 10000",
		fmt.Sprint("port_value: ", ingress), "port_value: 8081", "port_value: "+port).Replace(string(bootstrap))
	proctest.Envoy(t, strings.Replace(text, stands, instead, 1), admin)
	return func() {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/", ingress), nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("x-user", "ann")
		r, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close() // as said
	}
}

func TestHTTP1IsKnownByItsFirstBytes(t *testing.T) {
	for greeting, want := range map[string]bool{
		"GET / HTTP/1.1\r\nHost: a\r\n": true, "POST /envoy.service.ratel": true, "CONNECT a:80 HTTP/1.1\r\n": true,
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n": false, "PR": false, " / HTTP/1.1": false, "hello there": false, "\x16\x03\x01 ": false,
	} {
		if got := isHTTP1([]byte(greeting)); got != want {
			t.Errorf("%q: %t", greeting, got)
		}
	}
}
