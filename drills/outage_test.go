package drills

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// recovery is how soon Redis is asked again once it answers, and slack is what a busy machine may add.
const (
	recovery = 2 * time.Second
	slack    = time.Second
)

// outage is one that all policies are tried in.
type outage struct {
	redis      *proctest.Redis
	url        string // by which the service asks it; "" is its own
	begin, end func()
	// answers tells whether Redis can be used again, apart from the service; nil is PING.
	answers func() bool
	// reason is the label of failures in it, beside those that the breaker answers.
	reason string
	// says is what /readyz must say of Redis; "" is the reason in capitals, as servers write it.
	says string
	// forgets is true if Redis has lost its data.
	forgets bool
	lasts   int // calls; 0 is some
}

// tries is how often an outage is had, while too many calls are late in it for lack of CPU.
const tries = 3

// drill has the outage under load, and checks what its clients saw.
func (o *outage) drill(t *testing.T) {
	t.Helper()
	if o.url == "" {
		o.url = o.redis.URL()
	}
	if o.lasts == 0 {
		o.lasts = 400
	}
	s := startSite(t, "--redis="+o.url, rulesIn(t, policyRules()))
	l := s.policyLoad(250)
	from, late := 0, ""
	for try := range tries {
		l.awaitCalm("before the outage")
		from = l.begun()
		if late = o.once(s, l); late == "" {
			break
		}
		t.Logf("try %d: %s", try+1, late)
	}
	if late != "" {
		t.Error(late)
	}
	l.awaitCalm("after the outage")
	l.end()
	o.checkCounts(s, l, from)
	if o.forgets {
		proctest.Eventually(t, "the loss is told of", func() bool { return s.Metric("envoy_rls_store_resets_total") > 0 })
	}
	proctest.Eventually(t, "the log tells as often that Redis is asked again as that it is not asked", func() bool {
		return s.logged("store is not asked for now") == s.logged("store is asked again")
	})
}

// once has the outage once, and tells of too many late calls, and of a late recovery.
func (o *outage) once(s *site, l *load) (late string) {
	s.t.Helper()
	lines, opened := s.logged("\n"), s.logged("store is not asked for now")
	out := l.during(func() {
		o.begin()
		l.awaitCalls(o.lasts)
		o.checkHealth(s)
	})
	if n := s.logged("store is not asked for now") - opened; n != 1 {
		s.t.Errorf("the log tells %d times that Redis is not asked", n)
	}
	if n := s.logged("\n") - lines; n > 7 {
		s.t.Errorf("the outage is worth %d lines of the log:\n%s", n, s.Output())
	}
	slow := ""
	back := l.during(func() {
		o.end()
		slow = o.awaitRecovery(s, l)
	})
	return out.checkOutage(s.t) + back.checkOutage(s.t) + slow
}

// calm is how many calls in a row Redis must have decided.
const calm = 100

// awaitCalm returns once Redis decides and nothing is late, as far as this machine has time.
func (l *load) awaitCalm(when string) {
	l.t.Helper()
	for began := time.Now(); ; {
		p := l.during(func() { l.awaitCalls(calm) })
		all := p.of()
		if all.late+all.over+all.marked+sum(all.failed) <= p.few(all.calls) {
			return
		}
		if time.Since(began) > time.Minute {
			l.t.Fatalf("%s it is not calm: more than %d of %s", when, p.few(all.calls), all)
		}
	}
}

func sum(failed map[codes.Code]int) (n int) {
	for _, calls := range failed {
		n += calls
	}
	return n
}

// checkOutage checks calls during and around an outage: by policy, whatever was late apart. It tells of too many that
// were late.
func (p phase) checkOutage(t testing.TB) (late string) {
	t.Helper()
	t.Logf("control: %s", p.of(control))
	for _, policy := range policies {
		got := p.of(policy)
		t.Logf("%s: %s", policy, got)
		if few := p.few(got.calls); got.late > few {
			late += fmt.Sprintf("%s: more than %d late of %s\n", policy, few, got)
		}
		wrong := sum(got.failed)
		switch policy {
		case "local", "allow":
			wrong += got.over
		case "deny":
			wrong += got.markedOK
		case "error":
			wrong += got.over + got.marked - got.failed[codes.Unavailable]
		}
		if wrong > 0 {
			t.Errorf("%s has %d wrong answers among %s", policy, wrong, got)
		}
	}
	return late
}

// checkHealth checks that the service stays ready, and tells what is wrong, also by metrics.
func (o *outage) checkHealth(s *site) {
	s.t.Helper()
	says := o.says
	if says == "" {
		says = strings.ToUpper(o.reason)
	}
	proctest.Eventually(s.t, "/readyz says of Redis: "+says, func() bool { return strings.Contains(s.isReady(), says) })
	if n := s.Metric("envoy_rls_degraded_answers_total", `domain="deny"`, `policy="deny"`, `reason="breaker"`); n == 0 {
		s.t.Error("the breaker answers for nobody")
	}
	if n := s.Metric("envoy_rls_store_errors_total", `reason="`+o.reason+`"`); n == 0 {
		_, all := s.Get("/metrics")
		s.t.Errorf("there is no failure by the reason %s; there are:\n%s", o.reason, only(all, "_total{", "reason="))
	}
}

// only are the lines of a text that hold all the parts.
func only(text string, parts ...string) string {
	return strings.Join(slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool { return !proctest.ContainsAll(line, parts...) }), "\n")
}

// awaitRecovery waits until Redis can be used and decides again, and tells if it was not asked soon.
func (o *outage) awaitRecovery(s *site, l *load) (slow string) {
	s.t.Helper()
	if o.answers == nil {
		client := o.redis.Client()
		o.answers = func() bool { return client.Ping(context.Background()).Err() == nil }
	}
	proctest.Eventually(s.t, "Redis answers", o.answers)
	return l.awaitRecovery(recovery, s)
}

// awaitRecovery waits until Redis decides all calls again, and all breakers are closed, and tells if that took longer.
func (l *load) awaitRecovery(within time.Duration, sites ...*site) (slow string) {
	l.t.Helper()
	const round = 40 // calls, among which each source has some
	began := time.Now()
	proctest.Eventually(l.t, "Redis decides", func() bool {
		for _, s := range sites {
			if s.Metric("envoy_rls_breaker_state") > 0 {
				return false
			}
		}
		p := l.during(func() { l.awaitCalls(round) })
		all := p.of()
		return all.ok > 0 && all.marked+sum(all.failed) == 0
	})
	took := time.Since(began)
	l.t.Logf("it is asked %s later", took)
	if took > within+slack {
		return fmt.Sprintf("Redis answered, and it took %s until it was asked\n", took)
	}
	return ""
}

// checkCounts checks that Redis knows in the end what was admitted under local, but for calls that may count twice or
// not at all: those that nobody heard the end of. A Redis that forgets knows of the calls since the last outage began.
func (o *outage) checkCounts(s *site, l *load, from int) {
	s.t.Helper()
	all := l.between(0, l.begun()).of("local")
	since := all
	if o.forgets {
		since = l.between(from, l.begun()).of("local")
	}
	unsure := all.late + s.unsure("local") + int(s.Metric("envoy_rls_given_back_hits_total", `result="error"`))
	used := 0
	proctest.Eventually(s.t, "debts are given back", func() bool {
		used = plenty - s.left("local", "user", "ann")
		return used >= since.ok-unsure
	})
	s.t.Logf("admitted %d, since the outage began %d, counted %d; unsure are %d", all.ok, since.ok, used, unsure)
	if used > all.ok+unsure {
		s.t.Errorf("Redis has counted %d, and %d were admitted; unsure are %d", used, all.ok, unsure)
	}
}

// unsure is how many hits of a domain failed in a way that doesn't tell whether Redis has counted them.
func (s *site) unsure(domain string) int {
	label := `domain="` + domain + `"`
	n := 0.0
	for _, reason := range []string{"timeout", "connection", "canceled", "reply", "other"} {
		n += s.Metric("envoy_rls_degraded_answers_total", label, `reason="`+reason+`"`)
	}
	return int(n)
}

func TestRedisIsKilledAndComesBackEmpty(t *testing.T) {
	t.Parallel()
	r := proctest.StartRedis(t)
	(&outage{redis: r, begin: r.Kill, end: r.Restart, reason: "connection", says: "refused", forgets: true}).drill(t)
}

func TestRedisIsKilledAndComesBackWithItsData(t *testing.T) {
	t.Parallel()
	// What is written without fsync outlives the process.
	r := proctest.StartRedis(t, "--appendonly", "yes", "--appendfsync", "no")
	(&outage{redis: r, begin: r.Kill, end: r.Restart, reason: "connection", says: "refused"}).drill(t)
}

// TestRedisLoadsItsDataForAWhile has a restart that takes as long as the drill: each key is loaded for a millisecond until it
// is over.
func TestRedisLoadsItsDataForAWhile(t *testing.T) {
	t.Parallel()
	const keys = 30_000
	r := proctest.StartRedis(t, "--appendonly", "yes", "--appendfsync", "no", "--key-load-delay", "1000",
		"--loading-process-events-interval-bytes", "1024")
	pipe := r.Client().Pipeline()
	for i := range keys {
		pipe.Set(t.Context(), fmt.Sprint("ballast", i), "", 0)
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	loaded := func() {
		if err := r.Client().ConfigSet(t.Context(), "key-load-delay", "0").Err(); err != nil {
			t.Fatal(err)
		}
	}
	(&outage{redis: r, begin: r.Restart, end: loaded, reason: "connection", says: "LOADING"}).drill(t)
}

func TestRedisIsFrozen(t *testing.T) {
	t.Parallel()
	r := proctest.StartRedis(t)
	(&outage{
		redis: r, begin: func() { r.Signal(syscall.SIGSTOP) }, end: func() { r.Signal(syscall.SIGCONT) }, reason: "timeout",
		says: "timeout", lasts: 1000,
	}).drill(t)
}
