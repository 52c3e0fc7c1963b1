package certs

import (
	"crypto/tls"
	"errors"
	"fmt"
	"time"
)

// Pair is a certificate and its key, in two files in PEM. Any number of goroutines may use it.
type Pair struct{ source[*tls.Certificate] }

// NewPair returns the pair of two files. The first may also hold the certificates between it and its authority. Nothing is
// read yet, and report may be nil.
func NewPair(certFile, keyFile string, report Report) *Pair {
	p := &Pair{source[*tls.Certificate]{report: report}}
	if certFile != "" && keyFile != "" {
		p.files = []string{certFile, keyFile}
	}
	p.parse = func(contents [][]byte) (*tls.Certificate, time.Time, error) {
		if len(contents) < 2 {
			return nil, time.Time{}, errors.New("a certificate needs its key, and a key its certificate")
		}
		chain, err := parseCertificates(contents[0])
		if err != nil {
			return nil, time.Time{}, fmt.Errorf("%s: %w", certFile, err)
		}
		pair, err := tls.X509KeyPair(contents[0], contents[1])
		if err != nil {
			return nil, time.Time{}, fmt.Errorf("%s and %s: %w", certFile, keyFile, err)
		}
		return &pair, firstExpiry(chain), nil
	}
	return p
}

// Certificate returns the certificate and its key, which the caller must not change. The error names the files, and is
// for a pair that never was good.
func (p *Pair) Certificate() (*tls.Certificate, error) {
	c, _, err := p.get()
	return c, err
}

// Expires is when the first of the certificates in use expires; it is zero if none is.
func (p *Pair) Expires() time.Time {
	_, expires, _ := p.get() // report has been told
	return expires
}
