package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// transport is how gRPC is secured: by TLS, or not at all.
func (srv *server) transport() grpc.ServerOption {
	g := &srv.settings.GRPC
	if !g.TLS {
		if g.Cert+g.Key+g.ClientCA != "" || len(g.ClientSAN) > 0 {
			srv.log.Warn("gRPC is not secured: its certificates are not used without --grpc-tls (GRPC_SERVER_USE_TLS)")
		}
		return grpc.Creds(newPlainGRPC(srv.log))
	}
	// Envoy Gateway sets this variable, which the replaced service never read.
	if file := os.Getenv("GRPC_SERVER_TLS_CA_CERT"); file != "" && g.ClientCA == "" {
		srv.log.Info("GRPC_SERVER_TLS_CA_CERT is not used: clients need no certificate",
			"hint", "GRPC_CLIENT_TLS_CACERT="+file+" asks them for one")
	}
	t := &watchedTLS{log: srv.log, TransportCredentials: credentials.NewTLS(&tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return srv.certs.forClient(g.ClientSAN) },
	})}
	srv.metrics.CounterFunc("tls_handshake_failures_total", "Connections that TLS refused.", "listener")("grpc",
		func() float64 { return float64(t.failures.Load()) })
	return grpc.Creds(t)
}

// forClient is for one connection: with what the files hold now. Clients need a certificate for one of the names, if there
// are any, and if there are authorities.
func (c *certificates) forClient(names []string) (*tls.Config, error) {
	own, err := c.server.Certificate()
	if err != nil {
		return nil, err
	}
	// A session that is resumed would be trusted by the authorities of when it began.
	config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*own}, SessionTicketsDisabled: true}
	if c.clientCA == nil {
		return config, nil
	}
	config.ClientAuth = tls.RequireAndVerifyClientCert
	if config.ClientCAs, err = c.clientCA.Pool(); err != nil {
		return nil, err
	}
	if len(names) > 0 {
		config.VerifyConnection = func(s tls.ConnectionState) error { return checkSAN(s.PeerCertificates[0], names) }
	}
	return config, nil
}

// checkSAN reports a certificate that is for none of the names.
func checkSAN(c *x509.Certificate, names []string) error {
	for _, name := range names {
		if hasSAN(c, name) {
			return nil
		}
	}
	has := fmt.Sprintf("DNS %q, IP %s, URI %s", c.DNSNames, c.IPAddresses, c.URIs)
	return fmt.Errorf("the client's certificate is for %.200s, and not for %s", has, strings.Join(names, " or "))
}

// hasSAN tells whether a certificate is for a DNS name, an IP address, or a URI, which is the same to the letter.
func hasSAN(c *x509.Certificate, name string) bool {
	if strings.Contains(name, "://") {
		return slices.ContainsFunc(c.URIs, func(u *url.URL) bool { return u.String() == name })
	}
	return c.VerifyHostname(name) == nil
}

// watchedTLS is TLS that counts and logs the clients that it refuses, who are told little.
type watchedTLS struct {
	credentials.TransportCredentials
	log      *slog.Logger
	failures atomic.Uint64
	lines    sparing
}

// ServerHandshake implements credentials.TransportCredentials.
func (t *watchedTLS) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secured, info, err := t.TransportCredentials.ServerHandshake(c)
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) { // a probe of the port says nothing and leaves
		return secured, info, err
	}
	t.failures.Add(1)
	if missed, due := t.lines.next(); due {
		t.log.Warn("client refused by TLS", "client", c.RemoteAddr().String(), "error", err, "more_since_last_line", missed)
	}
	return nil, nil, err
}
