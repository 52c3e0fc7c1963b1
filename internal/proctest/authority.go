package proctest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates. Its own is in Dir as ca.crt.
type Authority struct {
	Dir  string
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority returns an authority with a directory of its own.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{Dir: t.TempDir(), t: t}
	a.cert, a.key = a.sign("ca", func(c *x509.Certificate) { c.IsCA, c.KeyUsage = true, x509.KeyUsageCertSign })
	return a
}

// File is a file in Dir.
func (a *Authority) File(name string) string { return filepath.Join(a.Dir, name) }

// Sign writes name.crt and name.key, which replace those that there may be: a certificate of the next hour for 127.0.0.1
// and for all uses, but for what changes say.
func (a *Authority) Sign(name string, changes ...func(*x509.Certificate)) {
	a.t.Helper()
	a.sign(name, changes...)
}

func (a *Authority) sign(name string, changes ...func(*x509.Certificate)) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, BasicConstraintsValid: true,
	}
	for _, change := range changes {
		change(c)
	}
	parent, signer := c, key
	if a.cert != nil {
		parent, signer = a.cert, a.key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	a.write(name+".crt", "CERTIFICATE", der)
	a.write(name+".key", "EC PRIVATE KEY", keyDER)
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return parsed, key
}

func (a *Authority) write(name, kind string, der []byte) {
	a.t.Helper()
	if err := os.WriteFile(a.File(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
}
