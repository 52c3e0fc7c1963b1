package redisstore

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"

	"github.com/envoy-rls/envoy-rls/pkg/certs"
)

// TLS says how connections are secured.
type TLS struct {
	// On secures connections whatever the address says.
	On bool
	certs.Client
	// SkipNameCheck trusts a certificate for whatever name.
	SkipNameCheck bool
}

// config is for one connection, to a host: with what the files hold now.
func (t *TLS) config(host string) (*tls.Config, error) {
	c, err := t.Config(host)
	if err == nil && t.SkipNameCheck {
		c.InsecureSkipVerify = true //nolint:gosec // VerifyConnection checks all but the name
		c.VerifyConnection = chainOnly(c.RootCAs)
	}
	return c, err
}

// chainOnly checks that a server's certificate is signed by somebody who is trusted, for whatever name.
func chainOnly(roots *x509.CertPool) func(tls.ConnectionState) error {
	return func(s tls.ConnectionState) error {
		o := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
		for _, c := range s.PeerCertificates[1:] {
			o.Intermediates.AddCert(c)
		}
		_, err := s.PeerCertificates[0].Verify(o)
		return err
	}
}

// readSecret reads a file with a secret in it, without the line's end.
func readSecret(file string) (string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("reading a secret: %w", err)
	}
	return strings.TrimRight(string(b), "\r\n"), nil
}
