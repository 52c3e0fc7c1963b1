package admin_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/admin"
	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
	"github.com/envoy-rls/envoy-rls/pkg/memstore"
	"github.com/envoy-rls/envoy-rls/pkg/overrides"
)

const (
	secret = "a-secret-for-tests"
	rules  = `
domain: d
keys: {user: {lowercase: true}, key: {hash: true}}
descriptors:
  - {key: user, max_values: 2, rate_limit: {unit: year, requests_per_unit: 5}}
  - {key: key, rate_limit: {unit: year, requests_per_unit: 5}}
  - {key: bucket, rate_limit: {unit: year, requests_per_unit: 5, algorithm: leaky_bucket, burst: 5}}
`
)

// service is an API over a memory, and its log.
type service struct {
	http.Handler
	testing.TB
	store *memstore.Store
	rules *descriptors.Ruleset
	log   strings.Builder
}

func newService(t testing.TB) *service {
	t.Helper()
	compiled, problems := descriptors.Compile([]descriptors.File{{Name: "rules.yaml", Data: []byte(rules)}}, descriptors.Options{})
	if descriptors.HasErrors(problems) {
		t.Fatal(problems)
	}
	s := &service{TB: t, store: memstore.New(memstore.Options{}), rules: compiled}
	log := slog.New(slog.NewTextHandler(&s.log, nil))
	set := overrides.New(overrides.NewBoard(time.Now), overrides.Options{Log: log})
	guard, err := admin.NewGuard(tokenFile(t, secret), true)
	if err != nil {
		t.Fatal(err)
	}
	s.Handler = guard.Protect(admin.New(admin.Options{
		Rules: func() *descriptors.Ruleset { return s.rules }, Store: s.store, Counters: []admin.Counters{s.store},
		Overrides: set, Guard: guard, Log: log,
	}))
	return s
}

func tokenFile(t testing.TB, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// ask calls with a token, and returns the status and the body.
func (s *service) ask(method, path, body string, headers ...string) (int, string) {
	s.Helper()
	r, err := http.NewRequestWithContext(s.Context(), method, "http://localhost"+admin.Root+path, strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	r.RemoteAddr = "192.0.2.1:4711"
	r.Header.Set("Authorization", "Bearer "+secret)
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// count charges what a request for a descriptor would.
func (s *service) count(key, value string) {
	s.Helper()
	entries := []descriptors.Entry{{Key: key, Value: value}}
	d := s.rules.Domain("d")
	d.Prepare(entries)
	rule := d.Match(entries)
	c := descriptors.Counter{Domain: "d", Entries: entries, Rule: rule}
	c.Overflow = rule.Overflows(c.AppendValues(nil), time.Now())
	l := &rule.Limits[0].Limit
	b := &limiter.Batch{
		Hits:      []limiter.Hit{{Key: string(c.AppendName(nil, l)), Limit: l, Cost: 1}},
		Decisions: make([]limiter.Decision, 1),
	}
	if err := s.store.Decide(s.Context(), b); err != nil {
		s.Fatal(err)
	}
}

func (s *service) counters(path string) (words []string) {
	s.Helper()
	code, body := s.ask(http.MethodGet, path, "")
	var list admin.CounterList
	if err := json.Unmarshal([]byte(body), &list); err != nil || code != http.StatusOK {
		s.Fatalf("%s: %d: %s", path, code, body)
	}
	for _, c := range list.Counters {
		used := "?"
		if c.Used != nil {
			used = fmt.Sprint(*c.Used, "+", *c.Left)
		}
		words = append(words, fmt.Sprintf("%s %s %s %s", c.Rule, c.Descriptor, c.Limit, used))
	}
	return words
}

func TestCountersAreThoseThatRequestsAreCountedIn(t *testing.T) {
	s := newService(t)
	for _, value := range []string{"Ann", "bob", "cid", "dan"} {
		s.count("user", value)
	}
	s.count("bucket", "b")
	s.count("key", "topsecret")
	for path, want := range map[string][]string{
		"counter?domain=d&entry=user=ANN": {"d.user user=ann 5 per year 1+4"},
		"counter?domain=d&entry=user=dan": {"d.user all other values of d.user 5 per year 2+3"},
		"counters?domain=d&rule=d.user": {"d.user all other values of d.user 5 per year 2+3", "d.user user=ann 5 per year 1+4",
			"d.user user=bob 5 per year 1+4"},
		"counters?domain=d&match=user=BOB":  {"d.user user=bob 5 per year 1+4"},
		"counters?domain=d&rule=d.bucket":   {"d.bucket bucket=b 5 per year 1+4"},
		"counters?domain=d&match=key=other": nil,
		"counters?domain=other":             nil,
	} {
		if got := s.counters(path); strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	if got := s.counters("counters?domain=d&match=key=topsecret"); len(got) != 1 || strings.Contains(got[0], "topsecret") {
		t.Errorf("a hashed value is shown as %q", got)
	}
	if code, body := s.ask(http.MethodPost, "counters/reset", `{"domain":"d","descriptor":[{"key":"key","value":"topsecret"}]}`); code != http.StatusOK {
		t.Errorf("%d: %s", code, body)
	}
	body := `{"domain":"d","rule":"d.key","match":[{"key":"key","value":"topsecret"}],"kind":"deny","for":"1h"}`
	code, body := s.ask(http.MethodPost, "overrides", body)
	if code != http.StatusOK || strings.Contains(body, "topsecret") {
		t.Errorf("an override of a hashed value is answered by %d: %s", code, body)
	}
	if log := s.log.String(); strings.Contains(log, "topsecret") || !strings.Contains(log, "counters reset") {
		t.Errorf("the log tells a hashed value, or nothing: %s", log)
	}
}

func TestCallsThatCanNotBeMeantAreRefused(t *testing.T) {
	s := newService(t)
	for _, c := range []struct {
		method, path, body string
		want               int
		says               string
	}{
		{"POST", "overrides", `{`, 400, "reading the call"},
		{"POST", "overrides", ``, 400, "nothing in it"},
		{"POST", "overrides", `[]`, 400, "it is of the type array; want an object"},
		{"POST", "overrides", `{"match":[{"key":1}]}`, 400, "match.key is of the type number; want a text in quotes"},
		{"POST", "overrides", `{"match":{}}`, 400, "match is of the type object; want a list"},
		{"POST", "overrides", `{"domain":"d","rule":"d.user","kind":"deny","for":"1h"} {}`, 400, "more behind its end"},
		{"POST", "overrides", `{"domain":"d","rule":"d.user","kind":"deny","for":"1h"}x`, 400, "more behind its end"},
		{"POST", "overrides", `{"domain":"d","rule":"d.user","kind":"deny","for":"1h","other":1}`, 400, `unknown field`},
		{"POST", "overrides", `{"domain":"d","rule":"d.user","kind":"deny"}`, 400, "for is how long it lasts"},
		{"POST", "overrides", `{"domain":"d","rule":"d.user","kind":"deny","for":"25h"}`, 400, "for is from 1s to 24h"},
		{"POST", "overrides", `{"domain":"d","rule":"d.user","kind":"deny","limit":"5/second","for":"1h"}`, 400, "of the kind limit only"},
		{"POST", "overrides", `{"domain":"d","rule":"d.usr","kind":"deny","for":"1h"}`, 400, "did you mean d.user?"},
		{"POST", "overrides", `{"rule":"d.user","kind":"deny","for":"1h"}`, 400, "domain is missing"},
		{"POST", "overrides", `{"domain":"d","kind":"deny","for":"1h"}`, 400, "rule is missing"},
		{"POST", "overrides", `{"domain":"` + strings.Repeat("d", 70_000) + `"}`, 400, "too large"},
		{"DELETE", "overrides/none", "", 404, "it may have expired"},
		{"PUT", "overrides", "", 404, "no such call"},
		{"GET", "counters?domain=d&max=0", "", 400, "max is a number"},
		{"GET", "counters?domian=d", "", 400, `no parameter "domian"`},
		{"GET", "counters?domain=d&match=user=a;b", "", 400, "semicolon"},
		{"GET", "counter?domain=d&entry=user=%zz", "", 400, "%zz"},
		{"GET", "counters", "", 400, "domain is missing"},
		{"GET", "counter?domain=d", "", 404, "an empty descriptor has no limit"},
		{"GET", "counter?domain=d&entry=x", "", 400, "write key=value"},
		{"POST", "counters/reset", `{}`, 400, "domain is missing"},
		{"POST", "counters/reset", `{"domain":1}`, 400, ": domain is of the type number; want a text in quotes"},
		{"POST", "counters/reset", `{"domain":"d","try":"no"}`, 400, "try is of the type string; want true or false"},
		{"POST", "counters/reset", `{"domain":"d","descriptor":[]}`, 400, "the descriptor has no entries"},
		{"POST", "counters/reset", `{"domain":"d","descriptor":[{"key":"x","value":"y"}]}`, 404, "no rule matches x=y"},
		{"POST", "counters/give", `{"domain":"d","descriptor":[{"key":"user","value":"y"}]}`, 400, "hits is a number"},
		{"POST", "counters/give", `{"domain":"d","descriptor":[{"key":"user","value":"y"}],"hits":1.5}`, 400, "hits is of the type number 1.5; want a whole number"},
		{"GET", "", "", 404, "no such call"},
	} {
		code, body := s.ask(c.method, c.path, c.body)
		var failure admin.Failure
		if err := json.Unmarshal([]byte(body), &failure); code != c.want || !strings.Contains(failure.Error, c.says) || err != nil && c.says != "" {
			t.Errorf("%s %s %.100s: %d: %s", c.method, c.path, c.body, code, body)
		}
	}
	s.rules = nil
	if code, body := s.ask("GET", "counters?domain=d", ""); code != http.StatusServiceUnavailable {
		t.Errorf("without rules: %d: %s", code, body)
	}
	if code, body := s.ask("GET", "overrides", ""); code != http.StatusOK {
		t.Errorf("without rules: %d: %s", code, body)
	}
}

// TestAPageInABrowserCanChangeNothing: it sends no token of its own, and no JSON to another site without being asked.
func TestAPageInABrowserCanChangeNothing(t *testing.T) {
	s := newService(t)
	body := `{"domain":"d","rule":"d.user","kind":"deny","for":"1h"}`
	for _, kind := range []string{"", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"} {
		if code, _ := s.ask("POST", "overrides", body, "Content-Type", kind); code != http.StatusUnsupportedMediaType {
			t.Errorf("a %q is answered by %d", kind, code)
		}
	}
	for _, header := range []string{"", secret, "Basic " + secret, "Bearer", "Bearer ", "Bearer " + secret + "x", "Bearer " + secret[1:]} {
		if code, body := s.ask("POST", "overrides", body, "Authorization", header); code != http.StatusUnauthorized || strings.Contains(body, secret) {
			t.Errorf("%q is answered by %d: %s", header, code, body)
		}
	}
	r := httptest.NewRequest(http.MethodGet, "http://rebound.example.com:6070"+admin.Root+"overrides", http.NoBody)
	w := httptest.NewRecorder()
	if s.ServeHTTP(w, r); w.Code != http.StatusForbidden {
		t.Errorf("a name that leads here is answered by %d", w.Code)
	}
	if code, _ := s.ask("POST", "overrides", body, "Authorization", "bearer "+secret); code != http.StatusOK {
		t.Errorf("who may is answered by %d", code)
	}
	if code, body := s.ask("GET", "token", "", "Authorization", "Bearer "+secret+"x"); code != http.StatusUnauthorized {
		t.Errorf("a wrong token is answered by %d: %s", code, body)
	}
	if code, body := s.ask("GET", "token", "", "Authorization", "Bearer "+secret); code != http.StatusOK || !strings.Contains(body, `"by":"`) {
		t.Errorf("a good token is answered by %d: %s", code, body)
	}
}

func TestWhoMayDoWhat(t *testing.T) {
	file := tokenFile(t, "# of two\n\nann "+secret+"\n"+secret+"2\n")
	for _, c := range []struct {
		file         string
		local        bool
		token        string
		read, change int
		by           string
	}{
		{"", true, "", 200, 403, ""},
		{"", true, secret, 200, 403, ""},
		{"", false, "", 403, 403, ""},
		{file, true, "", 200, 401, ""},
		{file, false, "", 401, 401, ""},
		{file, false, secret, 200, 200, "ann@192.0.2.1"},
		{file, true, secret + "2", 200, 200, "192.0.2.1"},
	} {
		g, err := admin.NewGuard(c.file, c.local)
		if err != nil {
			t.Fatal(err)
		}
		by := ""
		ask := func(h http.Handler) int {
			r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1:6070/", http.NoBody)
			r.Header.Set("Authorization", "Bearer "+c.token)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w.Code
		}
		read := ask(g.Read(func(http.ResponseWriter, *http.Request) {}))
		change := ask(g.Change(func(_ http.ResponseWriter, _ *http.Request, who string) { by = who }))
		if read != c.read || change != c.change || by != c.by {
			t.Errorf("%+v: reading is answered by %d, changing by %d, by %q", c, read, change, by)
		}
	}
	for text, want := range map[string]string{
		"":                          "it has no token",
		"short":                     "line 1: a token has 16 characters or more",
		"\na b " + secret:           "line 2 is not a token",
		"ann " + secret + " x":      "line 1 is not a token",
		strings.Repeat(" ", 70_000): "more than 65536 bytes",
	} {
		_, err := admin.NewGuard(tokenFile(t, text), true)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), secret) {
			t.Errorf("%.40q: %v", text, err)
		}
	}
}

func FuzzCalls(f *testing.F) {
	f.Add("POST", "overrides", `{"domain":"d","rule":"d.user","match":[{"key":"user","value":"x"}],"kind":"limit","limit":"5/second","for":"1h"}`)
	f.Add("POST", "counters/reset", `{"domain":"d","rule":"d.user","try":true}`)
	f.Add("POST", "counters/give", `{"domain":"d","descriptor":[{"key":"user","value":"x"}],"hits":4294967295}`)
	f.Add("GET", "counters?domain=d&match=user=x&max=5", "")
	f.Add("GET", "counter?domain=d&entry=user=%ff", "")
	f.Add("DELETE", "overrides/%00", "")
	s := newService(f)
	s.count("user", "x")
	f.Fuzz(func(t *testing.T, method, path, body string) {
		if _, err := http.NewRequestWithContext(t.Context(), method, "http://localhost"+admin.Root+path, http.NoBody); err != nil {
			return // no such call arrives
		}
		s.TB = t
		code, answer := s.ask(method, path, body)
		if code == http.StatusServiceUnavailable || code >= 200 && code < 300 && code != http.StatusNoContent && !json.Valid([]byte(answer)) {
			t.Errorf("%s %q %q is answered by %d: %s", method, path, body, code, answer)
		}
		if strings.ContainsFunc(strings.ReplaceAll(s.log.String(), "\n", ""), func(r rune) bool { return r < ' ' }) {
			t.Errorf("%s %q %q makes the log print what a terminal obeys", method, path, body)
		}
		s.log.Reset()
	})
}
