package redisstore

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
)

// TLS says how connections are secured. Its files are read for every connection, so that they can be changed without
// a restart.
type TLS struct {
	// On secures connections whatever the address says.
	On bool
	// CAFile has certificates to trust beside the system's; "" is none.
	CAFile string
	// CertFile and KeyFile are the client's own certificate; "" is none.
	CertFile, KeyFile string
	// ServerName is the name that servers' certificates must have; "" is the host of each.
	ServerName string
	// SkipNameCheck trusts a certificate for whatever name.
	SkipNameCheck bool
}

// config reads the files, for a connection to a host.
func (t *TLS) config(host string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host}
	if t.ServerName != "" {
		c.ServerName = t.ServerName
	}
	if t.CAFile != "" {
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("reading the CA: %w", err)
		}
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificate in PEM", t.CAFile)
		}
		c.RootCAs = pool
	}
	if (t.CertFile == "") != (t.KeyFile == "") {
		return nil, errors.New("a client's certificate needs its key, and a key its certificate")
	}
	if t.CertFile != "" {
		certificate, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("reading the client's certificate: %w", err)
		}
		c.Certificates = []tls.Certificate{certificate}
	}
	if t.SkipNameCheck {
		c.InsecureSkipVerify = true //nolint:gosec // VerifyConnection checks all but the name
		c.VerifyConnection = chainOnly(c.RootCAs)
	}
	return c, nil
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
