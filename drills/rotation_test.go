package drills

import (
	"os"
	"slices"
	"testing"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// TestCertificatesAndThePasswordOfRedisAreReplaced has each replaced as operators do it: what is new is good beside what is
// old, then in use, then alone. Each time all connections are ended, so that none goes on with what it had.
func TestCertificatesAndThePasswordOfRedisAreReplaced(t *testing.T) {
	t.Parallel()
	const first, second = "the-first-password", "the-second-password"
	files, next := proctest.NewAuthority(t), proctest.NewAuthority(t)
	write := func(name, text string) {
		if err := os.WriteFile(files.File(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, a := range []*proctest.Authority{files, next} {
		a.Sign("server")
		a.Sign("client")
	}
	both := read(t, files.File("ca.crt")) + read(t, next.File("ca.crt"))
	r, secured := proctest.StartSecureRedis(t, files, "server")
	admin := r.Client()
	user := func(rules ...string) {
		if err := admin.ACLSetUser(t.Context(), "limiter", rules...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	user("on", ">"+first, "~*", "+@all")
	write("password", "limiter:"+first)
	s := startSite(t, append(secure(files), "--redis=rediss://"+secured, "--redis-auth-file="+files.File("password"),
		rulesIn(t, policyRules()))...)
	l := s.policyLoad(250)
	l.awaitCalm("before")
	var all phase
	for _, step := range []struct {
		what string
		do   func()
	}{
		{"the next CA is trusted, too", func() { write("ca.crt", both) }},
		{"certificates are the next CA's", func() {
			for _, name := range []string{"server.crt", "server.key", "client.crt", "client.key"} {
				write(name, read(t, next.File(name)))
			}
		}},
		{"the first CA is trusted no more", func() { write("ca.crt", read(t, next.File("ca.crt"))) }},
		{"there are two passwords", func() { user(">" + second) }},
		{"the second password is used", func() { write("password", "limiter:"+second) }},
		{"the first password is good no more", func() { user("<" + first) }},
	} {
		p := l.during(func() {
			step.do()
			r.ReadCertificates(files, "server")
			ended, err := admin.Do(t.Context(), "CLIENT", "KILL", "USER", "limiter").Int()
			if err != nil || ended == 0 {
				t.Errorf("%s: %d connections were ended, %v", step.what, ended, err)
			}
			l.awaitCalls(calm)
		})
		t.Logf("%s: %s", step.what, p.of())
		all = slices.Concat(all, p)
	}
	if late := all.checkOutage(t); late != "" {
		t.Error(late)
	}
	got := all.of()
	few := all.few(got.calls)
	if n := got.marked + sum(got.failed); n > few {
		t.Errorf("%d were not decided by Redis, more than %d of %s", n, few, got)
	}
	if n := s.logged("store is not asked for now"); n > 0 && few < got.calls/5 {
		t.Errorf("the breaker has opened %d times", n)
	}
	l.awaitCalm("afterwards")
	l.end()
	(&outage{}).checkCounts(s, l, 0)
}

// secure are the arguments by which a service is a client of an authority's Redis.
func secure(a *proctest.Authority) []string {
	return []string{
		"--redis-tls-ca=" + a.File("ca.crt"), "--redis-tls-cert=" + a.File("client.crt"), "--redis-tls-key=" + a.File("client.key"),
	}
}

func read(t testing.TB, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
