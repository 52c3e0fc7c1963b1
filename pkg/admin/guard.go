package admin

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
)

// The bounds of a file of tokens.
const (
	minToken     = 16
	maxTokenFile = 64 << 10
)

// Guard lets in who has a token. Any number of goroutines may use it.
type Guard struct {
	file  string
	local bool
}

// NewGuard returns a Guard by a file that has a token a line, or the name of who has it, a space, and the token. The file is
// read for every call, so that it can be replaced at any time; the error says what is wrong with it now. Without a file nobody
// gets in to change anything. What changes nothing needs a token unless all callers are local; a Guard counts on its Protect
// being around all of the port then.
func NewGuard(file string, local bool) (*Guard, error) {
	g := &Guard{file, local}
	if file == "" {
		return g, nil
	}
	_, err := readTokens(file)
	return g, err
}

// Change serves what changes something: only to who has a token, whose name or address is by.
func (g *Guard) Change(serve func(w http.ResponseWriter, r *http.Request, by string)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if by, ok := g.admit(w, r); ok {
			serve(w, r, by)
		}
	})
}

// Read serves what changes nothing, and tells what clients sent or who did what.
func (g *Guard) Read(serve http.HandlerFunc) http.Handler {
	if g.local {
		return serve
	}
	return g.Change(func(w http.ResponseWriter, r *http.Request, _ string) { serve(w, r) })
}

// Protect serves all of a port, with headers that keep a browser from taking an answer for what it isn't, from keeping it,
// and other sites from reading it. Where all callers are local it serves only those that ask by an address or localhost.
func (g *Guard) Protect(all http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Security-Policy", "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Content-Type-Options", "nosniff")
		if g.local && !directly(r.Host) {
			refuse(w, http.StatusForbidden, errors.New("ask by an address, or by localhost: another name may be a page's that a browser shows"))
			return
		}
		all.ServeHTTP(w, r)
	})
}

// directly tells whether a host is an address or localhost. A page's own name can be made to lead to a local port.
func directly(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil || host == "localhost"
}

// Caller is the answer to GET token, by which a client learns that its token is a good one.
type Caller struct {
	// By is who has the token, as logs name them.
	By string `json:"by"`
}

func tellCaller(w http.ResponseWriter, _ *http.Request, by string) {
	answer(w, http.StatusOK, Caller{by})
}

// admit finds out who calls, or refuses the call.
func (g *Guard) admit(w http.ResponseWriter, r *http.Request) (by string, ok bool) {
	if g.file == "" {
		refuse(w, http.StatusForbidden, fmt.Errorf("this needs a token, and the service has none: start it with --admin-token-file "+
			"(ADMIN_TOKEN_FILE), a file with a token of %d characters or more a line", minToken))
		return "", false
	}
	list, err := readTokens(g.file)
	if err != nil {
		refuse(w, http.StatusServiceUnavailable, err)
		return "", false
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	name, known := find(list, token)
	if !known || !strings.EqualFold(scheme, "Bearer") {
		w.Header().Set("WWW-Authenticate", "Bearer")
		refuse(w, http.StatusUnauthorized, errors.New("this needs the header Authorization: Bearer TOKEN, with a token of --admin-token-file"))
		return "", false
	}
	by, _, _ = net.SplitHostPort(r.RemoteAddr)
	if name != "" {
		by = name + "@" + by
	}
	return by, true
}

// token is one of the file's.
type token struct{ name, secret string }

// find compares with all tokens, and takes as long whichever it is.
func find(list []token, given string) (name string, known bool) {
	hash := sha256.Sum256([]byte(given))
	for _, t := range list {
		if own := sha256.Sum256([]byte(t.secret)); subtle.ConstantTimeCompare(hash[:], own[:]) == 1 {
			name, known = t.name, true
		}
	}
	return name, known
}

// FirstToken is the first token of a file that NewGuard takes.
func FirstToken(file string) (string, error) {
	list, err := readTokens(file)
	if err != nil {
		return "", err
	}
	return list[0].secret, nil
}

// readTokens returns at least one.
func readTokens(file string) ([]token, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("reading tokens: %w", err)
	}
	defer func() { _ = f.Close() }() // it has been read
	text, err := io.ReadAll(io.LimitReader(f, maxTokenFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading tokens: %w", err)
	case len(text) > maxTokenFile:
		return nil, fmt.Errorf("reading tokens: %s has more than %d bytes", file, maxTokenFile)
	}
	list, err := parseTokens(text)
	if err != nil {
		return nil, fmt.Errorf("reading tokens: %s: %w", file, err)
	}
	return list, nil
}

// parseTokens reads a file of tokens. Its errors tell none of them.
func parseTokens(text []byte) (list []token, err error) {
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, maxTokenFile+1)
	for n := 1; lines.Scan(); n++ {
		words := strings.Fields(lines.Text())
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		secret := words[len(words)-1]
		switch {
		case len(words) > 2:
			return nil, fmt.Errorf("line %d is not a token, or a name and a token", n)
		case len(secret) < minToken:
			return nil, fmt.Errorf("line %d: a token has %d characters or more; `openssl rand -hex 16` makes one", n, minToken)
		}
		list = append(list, token{strings.Join(words[:len(words)-1], ""), secret})
	}
	if len(list) == 0 && lines.Err() == nil {
		return nil, errors.New("it has no token")
	}
	return list, lines.Err()
}
