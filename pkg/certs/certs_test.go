package certs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// told are the reports of changes: "ok", or what is wrong.
type told []string

func (r *told) report(_ time.Time, wrong error) {
	if wrong != nil {
		*r = append(*r, wrong.Error())
		return
	}
	*r = append(*r, "ok")
}

// expect takes what was told since the last time.
func (r *told) expect(t *testing.T, what string, want ...string) {
	t.Helper()
	matches := len(*r) == len(want)
	for i := range min(len(*r), len(want)) {
		matches = matches && strings.Contains((*r)[i], want[i])
	}
	if !matches {
		t.Errorf("%s: %q was told, want %q", what, *r, want)
	}
	*r = nil
}

// name is that of the certificate in use.
func name(t *testing.T, p *Pair) string {
	t.Helper()
	c, err := p.Certificate()
	if err != nil {
		t.Fatal(err)
	}
	return c.Leaf.Subject.CommonName
}

func contents(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func write(t *testing.T, file string, text []byte) {
	t.Helper()
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// pairOf copies a certificate and its key to directories of their own, and returns the pair of those.
func pairOf(t *testing.T, a *proctest.Authority, name string, r *told) (p *Pair, cert, key string) {
	t.Helper()
	cert, key = filepath.Join(t.TempDir(), "tls.crt"), filepath.Join(t.TempDir(), "tls.key")
	write(t, cert, contents(t, a.File(name+".crt")))
	write(t, key, contents(t, a.File(name+".key")))
	return NewPair(cert, key, r.report), cert, key
}

func TestAPairThatIsReplacedOneFileAfterTheOtherIsUsedOnceItFits(t *testing.T) {
	a := proctest.NewAuthority(t)
	a.Sign("first")
	a.Sign("second")
	var r told
	p, cert, key := pairOf(t, a, "first", &r)
	if got := name(t, p); got != "first" {
		t.Errorf("%s is in use", got)
	}
	r.expect(t, "at the start", "ok")
	write(t, cert, contents(t, a.File("second.crt")))
	for range 3 {
		if got := name(t, p); got != "first" {
			t.Errorf("%s is in use with the key of the first", got)
		}
	}
	r.expect(t, "with the key of the first", cert+" and "+key+": tls: private key does not match public key")
	write(t, key, contents(t, a.File("second.key")))
	if got := name(t, p); got != "second" {
		t.Errorf("%s is in use", got)
	}
	r.expect(t, "with its own key", "ok")
}

// TestNothingHalfWrittenIsUsed cuts files off at every byte, but where the second certificate has hardly begun.
func TestNothingHalfWrittenIsUsed(t *testing.T) {
	a := proctest.NewAuthority(t)
	a.Sign("server")
	p, cert, key := pairOf(t, a, "server", &told{})
	first := len(bytes.TrimSpace(contents(t, cert)))
	chain := append(contents(t, cert), contents(t, a.File("ca.crt"))...)
	write(t, cert, chain)
	expectWhole := func(what string, n int) {
		t.Helper()
		if c, err := p.Certificate(); err != nil || len(c.Certificate) != 2 {
			t.Fatalf("with the first %d bytes of %s the certificate is %v, %v", n, what, c, err)
		}
	}
	expectWhole("all", len(chain))
	for n := range len(bytes.TrimSpace(chain)) {
		if n < first || n >= first+len("\n-----BEGIN") {
			write(t, cert, chain[:n])
			expectWhole("the certificates", n)
		}
	}
	write(t, cert, chain)
	text := contents(t, key)
	for n := range len(bytes.TrimSpace(text)) {
		write(t, key, text[:n])
		expectWhole("the key", n)
	}
}

func TestAuthoritiesAreReadWholeOrNotAtAll(t *testing.T) {
	a, b := proctest.NewAuthority(t), proctest.NewAuthority(t)
	a.Sign("of a")
	b.Sign("of b")
	file := filepath.Join(t.TempDir(), "ca.crt")
	both := append(contents(t, a.File("ca.crt")), contents(t, b.File("ca.crt"))...)
	write(t, file, both)
	var r told
	authorities := NewAuthorities(file, r.report)
	trusts := func(a *proctest.Authority, name string) bool {
		pool, err := authorities.Pool()
		if err != nil {
			t.Fatal(err)
		}
		pair, err := tls.LoadX509KeyPair(a.File(name+".crt"), a.File(name+".key"))
		if err != nil {
			t.Fatal(err)
		}
		_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: pool})
		return err == nil
	}
	if !trusts(a, "of a") || !trusts(b, "of b") {
		t.Error("not both authorities are trusted")
	}
	r.expect(t, "both", "ok")
	write(t, file, both[:len(both)-40])
	if !trusts(b, "of b") {
		t.Error("a half-written file has done away with an authority")
	}
	r.expect(t, "half of the second", "of its 2 blocks in PEM only 1 can be read")
	write(t, file, []byte("nothing"))
	trusts(a, "of a")
	r.expect(t, "no certificate", file+": it holds no certificate in PEM")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	trusts(a, "of a")
	trusts(a, "of a")
	r.expect(t, "no file", "open "+file+": no such file or directory")
	write(t, file, contents(t, a.File("ca.crt")))
	if trusts(b, "of b") {
		t.Error("an authority that was taken out is trusted")
	}
	r.expect(t, "one", "ok")
	if _, err := NewAuthorities(file+".missing", nil).Pool(); err == nil || !strings.Contains(err.Error(), file+".missing") {
		t.Errorf("the error of a file that never was there is %v", err)
	}
}

// TestALinkToADirectoryMayBeSwapped is what Kubernetes does to a volume: names are links into ..data, which is a link to a
// directory, and is renamed over.
func TestALinkToADirectoryMayBeSwapped(t *testing.T) {
	a := proctest.NewAuthority(t)
	dir := t.TempDir()
	for _, version := range []string{"first", "second"} {
		a.Sign(version)
		if err := os.Mkdir(filepath.Join(dir, version), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, version, "tls.crt"), contents(t, a.File(version+".crt")))
		write(t, filepath.Join(dir, version, "tls.key"), contents(t, a.File(version+".key")))
	}
	link := func(to, name string) {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	link("first", "..data")
	link("..data/tls.crt", "tls.crt")
	link("..data/tls.key", "tls.key")
	var r told
	p := NewPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), r.report)
	before := name(t, p)
	link("second", "..data_tmp")
	if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
	if after := name(t, p); before != "first" || after != "second" {
		t.Errorf("%s was in use, then %s", before, after)
	}
	r.expect(t, "a swap", "ok", "ok")
}

func TestExpiresIsTheFirstEnd(t *testing.T) {
	a := proctest.NewAuthority(t)
	soon := time.Now().Add(time.Minute).Truncate(time.Second)
	a.Sign("server", func(c *x509.Certificate) { c.NotAfter = soon })
	p, cert, _ := pairOf(t, a, "server", &told{})
	write(t, cert, append(contents(t, cert), contents(t, a.File("ca.crt"))...))
	if got := p.Expires(); !got.Equal(soon) {
		t.Errorf("a chain expires at %s, want %s", got, soon)
	}
	if got := NewAuthorities("nowhere", nil).Expires(); !got.IsZero() {
		t.Errorf("what is not there expires at %s", got)
	}
}

func TestAPairNeedsBothFiles(t *testing.T) {
	for _, p := range []*Pair{NewPair("a", "", nil), NewPair("", "a", nil)} {
		if _, err := p.Certificate(); err == nil || err.Error() != "a certificate needs its key, and a key its certificate" {
			t.Errorf("the error is %v", err)
		}
	}
}

func TestManyMayAskWhileFilesChange(t *testing.T) {
	a := proctest.NewAuthority(t)
	a.Sign("server")
	var r told
	p := NewPair(a.File("server.crt"), a.File("server.key"), r.report)
	name(t, p)
	done := make(chan struct{})
	var askers sync.WaitGroup
	for range 4 {
		askers.Go(func() {
			for {
				if c, err := p.Certificate(); err != nil || c == nil {
					t.Errorf("there is no certificate: %v", err)
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for range 50 {
		a.Sign("server")
	}
	close(done)
	askers.Wait()
	name(t, p)
	if last := r[len(r)-1]; last != "ok" {
		t.Errorf("in the end the files are %s", last)
	}
}

func FuzzParseCertificates(f *testing.F) {
	a := proctest.NewAuthority(f)
	text, err := os.ReadFile(a.File("ca.crt"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add(append(text, text...))
	f.Add(text[:len(text)/2])
	f.Fuzz(func(t *testing.T, text []byte) {
		list, err := parseCertificates(text)
		if (err == nil) != (len(list) > 0) {
			t.Error(fmt.Errorf("%d certificates and the error %w", len(list), err))
		}
		if err == nil && firstExpiry(list).IsZero() && !list[0].NotAfter.IsZero() {
			t.Error("the first end is lost")
		}
	})
}
