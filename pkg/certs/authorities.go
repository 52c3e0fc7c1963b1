package certs

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"
)

// Authorities are the certificates in a file in PEM that those of others are verified by. Any number of goroutines may
// use them.
type Authorities struct{ source[[]*x509.Certificate] }

// NewAuthorities returns the authorities of a file. Nothing is read yet, and report may be nil.
func NewAuthorities(file string, report Report) *Authorities {
	parse := func(contents [][]byte) ([]*x509.Certificate, time.Time, error) {
		list, err := parseCertificates(contents[0])
		if err != nil {
			return nil, time.Time{}, fmt.Errorf("%s: %w", file, err)
		}
		return list, firstExpiry(list), nil
	}
	return &Authorities{source[[]*x509.Certificate]{files: []string{file}, parse: parse, report: report}}
}

// Pool returns a pool of the authorities alone. The error names the file, and is for one that never was good.
func (a *Authorities) Pool() (*x509.CertPool, error) { return a.addTo(x509.NewCertPool()) }

// PoolWithSystem is Pool with the system's authorities, too.
func (a *Authorities) PoolWithSystem() (*x509.CertPool, error) {
	pool, err := x509.SystemCertPool()
	if err != nil { // there are none
		pool = x509.NewCertPool()
	}
	return a.addTo(pool)
}

func (a *Authorities) addTo(pool *x509.CertPool) (*x509.CertPool, error) {
	list, _, err := a.get()
	for _, c := range list {
		pool.AddCert(c)
	}
	return pool, err
}

// Expires is when the first of the authorities in use expires; it is zero if there are none.
func (a *Authorities) Expires() time.Time {
	_, expires, _ := a.get() // report has been told
	return expires
}

// parseCertificates reads all certificates of a file, of which there must be one. A block that can't be read, which the
// libraries pass over in silence, is an error: the file may be half written.
func parseCertificates(text []byte) ([]*x509.Certificate, error) {
	var list []*x509.Certificate
	blocks := 0
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		blocks++
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d can't be read: %w", len(list)+1, err)
		}
		list = append(list, c)
	}
	switch begun := bytes.Count(text, []byte("-----BEGIN")); {
	case blocks < begun:
		return nil, fmt.Errorf("of its %d blocks in PEM only %d can be read", begun, blocks)
	case len(list) == 0:
		return nil, errors.New("it holds no certificate in PEM")
	}
	return list, nil
}

func firstExpiry(list []*x509.Certificate) time.Time {
	first := list[0].NotAfter
	for _, c := range list[1:] {
		if c.NotAfter.Before(first) {
			first = c.NotAfter
		}
	}
	return first
}
