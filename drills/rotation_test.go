package drills

import (
	"os"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// rotation is a Redis and a service, with the files by which they know each other.
type rotation struct {
	t     testing.TB
	files *proctest.Authority // whose files the next one's are put in place of
	redis *proctest.Redis
	admin *redis.Client
	site  *site
}

func startRotation(t testing.TB, password string) *rotation {
	t.Helper()
	a := proctest.NewAuthority(t)
	a.Sign("server")
	a.Sign("client")
	server, secured := proctest.StartSecureRedis(t, a, "server")
	r := &rotation{t: t, files: a, redis: server, admin: server.Client()}
	r.user("on", ">"+password, "~*", "+@all")
	r.write("password", "limiter:"+password)
	r.site = startSite(t, append(secure(a), "--redis=rediss://"+secured, "--redis-auth-file="+a.File("password"),
		rulesIn(t, policyRules()))...)
	return r
}

// secure are the arguments by which a service is a client of an authority's Redis.
func secure(a *proctest.Authority) []string {
	return []string{
		"--redis-tls-ca=" + a.File("ca.crt"), "--redis-tls-cert=" + a.File("client.crt"), "--redis-tls-key=" + a.File("client.key"),
	}
}

// user changes the service's user in Redis.
func (r *rotation) user(rules ...string) {
	r.t.Helper()
	if err := r.admin.ACLSetUser(r.t.Context(), "limiter", rules...).Err(); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rotation) write(name, text string) {
	r.t.Helper()
	if err := os.WriteFile(r.files.File(name), []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// renew has Redis read its files and ends all connections of the service, so that none goes on with what it had.
func (r *rotation) renew() {
	r.t.Helper()
	r.redis.ReadCertificates(r.files, "server")
	ended, err := r.admin.Do(r.t.Context(), "CLIENT", "KILL", "USER", "limiter").Int()
	if err != nil || ended == 0 {
		r.t.Errorf("%d connections were ended, %v", ended, err)
	}
}

// TestCertificatesAndThePasswordOfRedisAreReplaced has each replaced as operators do it: what is new is good beside what is
// old, then in use, then alone.
func TestCertificatesAndThePasswordOfRedisAreReplaced(t *testing.T) {
	t.Parallel()
	const first, second = "the-first-password", "the-second-password"
	r, next := startRotation(t, first), proctest.NewAuthority(t)
	next.Sign("server")
	next.Sign("client")
	l := r.site.policyLoad(250)
	l.awaitCalm("before")
	var all phase
	for _, step := range []struct {
		what string
		do   func()
	}{
		{"the next CA is trusted, too", func() { r.write("ca.crt", read(t, r.files.File("ca.crt"))+read(t, next.File("ca.crt"))) }},
		{"certificates are the next CA's", func() {
			for _, name := range []string{"server.crt", "server.key", "client.crt", "client.key"} {
				r.write(name, read(t, next.File(name)))
			}
		}},
		{"the first CA is trusted no more", func() { r.write("ca.crt", read(t, next.File("ca.crt"))) }},
		{"there are two passwords", func() { r.user(">" + second) }},
		{"the second password is used", func() { r.write("password", "limiter:"+second) }},
		{"the first password is good no more", func() { r.user("<" + first) }},
	} {
		p := l.during(func() {
			step.do()
			r.renew()
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
	if n := r.site.logged("store is not asked for now"); n > 0 && few < got.calls/5 {
		t.Errorf("the breaker has opened %d times", n)
	}
	l.awaitCalm("afterwards")
	l.end()
	(&outage{}).checkCounts(r.site, l, 0)
}

func read(t testing.TB, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
