package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// adminAsked is a look at a page of admin, by a host's name.
type adminAsked struct{ path, host, token string }

// head is what the page answers with.
func (a adminAsked) head(t *testing.T, s *proctest.Service) (status int, h http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.Admin+a.path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = a.host
	req.Header.Set("Authorization", "Bearer "+a.token)
	r, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Body.Close() // its head is enough
	return r.StatusCode, r.Header
}

// lookablePages are all that answer at once.
var lookablePages = []string{
	"/", "/no/such/page", "/api/v1/counters?domain=shop", "/api/v1/overrides", "/api/v1/none", "/api/v1/rules", "/api/v1/status", "/console", "/console/main.js",
	"/debug/pprof/", "/explain?domain=shop&descriptor=user=ann", "/explain", "/json", "/loglevel", "/metrics", "/rlconfig", "/stats", "/top",
	"/top?rows=0", "/unmatched",
}

func TestAllOfAdminIsProtectedFromPagesInABrowser(t *testing.T) {
	s := startServices(t, 1)[0]
	for _, path := range lookablePages {
		_, h := adminAsked{path: path}.head(t, s)
		for name, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Content-Security-Policy": "default-src 'none'; ",
			"Cross-Origin-Resource-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin", "Cache-Control": "no-",
		} {
			if got := h.Values(name); len(got) != 1 || !strings.HasPrefix(got[0], want) {
				t.Errorf("%s has the %s %q, want %q", path, name, got, want)
			}
		}
		if !strings.Contains(h.Get("Content-Security-Policy"), "frame-ancestors 'none'") {
			t.Errorf("%s can be framed: %s", path, h.Get("Content-Security-Policy"))
		}
		for host, refused := range map[string]bool{"rebound.example.com": true, "localhost:1234": false, "[::1]": false} {
			if status, _ := (adminAsked{path: path, host: host}).head(t, s); (status == http.StatusForbidden) != refused {
				t.Errorf("%s by the name %s is answered by %d", path, host, status)
			}
		}
	}
}

// TestWhatClientsSentIsToldWithATokenOnly is about an admin that others reach.
func TestWhatClientsSentIsToldWithATokenOnly(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(tokens, []byte(adminToken), 0o600); err != nil {
		t.Fatal(err)
	}
	rules := "--rules=" + writeRules(t)
	for name, c := range map[string]struct {
		args    []string
		refused int
		needs   []string // a token, in the beginning of their paths
	}{
		"with tokens":    {[]string{"--admin-token-file=" + tokens}, http.StatusUnauthorized, []string{"/api/v1/counters", "/api/v1/overrides", "/loglevel"}},
		"without tokens": {nil, http.StatusForbidden, []string{"/api/v1/counters", "/api/v1/overrides", "/loglevel"}},
		"with values in /top": {[]string{"--admin-token-file=" + tokens, "--top-values"}, http.StatusUnauthorized,
			[]string{"/api/v1/counters", "/api/v1/overrides", "/loglevel", "/top"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := proctest.StartService(t, append([]string{rules, "--admin-host=0.0.0.0"}, c.args...)...)
			for _, path := range lookablePages {
				needs := false
				for _, p := range c.needs {
					needs = needs || strings.HasPrefix(path, p)
				}
				asked := adminAsked{path: path, host: "envoy-rls.example.com"}
				if status, _ := asked.head(t, s); (status == c.refused) != needs {
					t.Errorf("%s is answered by %d", path, status)
				}
				asked.token = adminToken
				if status, _ := asked.head(t, s); c.args != nil && (status == http.StatusUnauthorized || status == http.StatusForbidden) {
					t.Errorf("%s with a token is answered by %d", path, status)
				}
			}
		})
	}
}

// TestWhatAnybodyMaySeeOfAdminHoldsNoSecret: passwords are those of Redis, and values those of clients.
func TestWhatAnybodyMaySeeOfAdminHoldsNoSecret(t *testing.T) {
	redis := proctest.StartRedis(t, "--requirepass", "SECRET-of-redis")
	s := proctest.StartService(t, "--rules="+writeRules(t), "--redis=redis://:SECRET-of-redis@"+redis.Addr, "--admin-host=0.0.0.0")
	askOften(t, s, "user", 2)
	askOften(t, s, "SECRET-of-client", 1)
	for _, path := range lookablePages {
		if strings.HasPrefix(path, "/explain") || path == "/unmatched" {
			continue // they tell keys
		}
		text, err := fetch(http.MethodGet, "http://"+s.Admin+path, nil)
		if err != nil || strings.Contains(text, "SECRET") {
			t.Errorf("%s: %v: %s", path, err, text)
		}
	}
}
