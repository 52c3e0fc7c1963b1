package drills

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

func TestTheServiceIsStarvedOfCPU(t *testing.T) {
	t.Parallel()
	r := proctest.StartRedis(t)
	s := startSite(t, "--redis="+r.URL(), rulesIn(t, policyRules()))
	l := s.policyLoad(500)
	l.awaitCalm("before")
	goroutines := s.Metric("go_goroutines")
	p := l.during(func() {
		tick := time.NewTicker(40 * time.Millisecond)
		defer tick.Stop()
		for range 40 {
			s.Signal(syscall.SIGSTOP)
			<-tick.C
			s.Signal(syscall.SIGCONT)
			<-tick.C
		}
	})
	t.Logf("while it starves: %s", p.of())
	l.awaitCalm("afterwards")
	if store := s.isReady(); store != "ok" {
		t.Errorf("/readyz says of the store: %s", store)
	}
	if n := s.Metric("go_goroutines"); n > goroutines+50 {
		t.Errorf("there were %v goroutines, and are %v", goroutines, n)
	}
	l.end()
	all := l.between(0, l.begun()).of("local")
	used := plenty - s.left("local", "user", "ann")
	t.Logf("counted %d of %s", used, all)
	if most := all.ok + all.late*2/3 + s.unsure("local") + 5; used > most {
		t.Errorf("%d are counted, and not up to %d, though most of those who were late had left: %s", used, most, all)
	}
}

// TestAFloodOfNewValuesFillsNeitherRedisNorOtherDomains has 50,000 a second, as far as this machine has time.
func TestAFloodOfNewValuesFillsNeitherRedisNorOtherDomains(t *testing.T) {
	const most, perSecond, each = 2000, 50_000, 50
	r := proctest.StartRedis(t)
	rules := policyRules()
	rules["flooded"] = fmt.Sprintf("  - {key: address, max_values: %d, rate_limit: {%s, requests_per_unit: 1000}}\n"+
		"  - {key: user, on_store_failure: local, rate_limit: {%s, requests_per_unit: %d}}\n", most, decade, decade, plenty)
	s := startSite(t, "--redis="+r.URL(), rulesIn(t, rules))
	l := s.policyLoad(250)
	l.open(25, always(s.client, request("flooded", "user", "ann")))
	addresses, answered, late := newValues(dial(t, s.GRPC), each), 0, ""
	for range tries {
		l.awaitCalm("before")
		flood, began := newLoad(t), time.Now()
		flood.deadline = time.Second
		p := l.during(func() {
			flood.open(perSecond/each, addresses)
			flood.awaitCalls(3 * perSecond / each)
		})
		took := time.Since(began)
		flood.end()
		flooded := flood.between(0, flood.begun()).of()
		t.Logf("%.0f new values a second: %s", float64(each*flooded.calls)/took.Seconds(), flooded)
		answered += each * (flooded.ok + flooded.over)
		if user := p.of("flooded"); user.over+sum(user.failed) > 0 {
			t.Errorf("the other rule of the domain has refused of %s", user)
		}
		if late = p.checkOutage(t); late == "" {
			break
		}
	}
	if late != "" {
		t.Error(late)
	}
	if n, least := int(s.Metric("envoy_rls_overflow_hits_total")), answered-most*11/10; n < least {
		t.Errorf("of %d hits %d have shared a counter, want %d or more", answered, n, least)
	}
	keys, err := r.Client().DBSize(t.Context()).Result()
	if err != nil || keys < most || keys > most*11/10 {
		t.Errorf("Redis holds %d keys, %v", keys, err)
	}
	l.awaitCalm("after")
}

// newValues asks in each call for so many addresses that were never asked for.
func newValues(client ratelimit.RateLimitServiceClient, each int) source {
	var last atomic.Int64
	return source{client, func(int) *ratelimit.RateLimitRequest {
		req := &ratelimit.RateLimitRequest{Domain: "flooded"}
		for range each {
			req.Descriptors = append(req.Descriptors, request("", "address", fmt.Sprint(last.Add(1))).GetDescriptors()...)
		}
		return req
	}}
}

// TestANeighbourOfAFloodedDomainIsNotHeldUp floods a domain with ten times as many requests as a Redis answers for that
// takes 300 ms for a call of at most 128.
func TestANeighbourOfAFloodedDomainIsNotHeldUp(t *testing.T) {
	proxy := proctest.StartProxy(t, proctest.StartRedis(t).Addr, 1)
	rules := policyRules()
	rules["flooded"] = fmt.Sprintf("  - {key: user, on_store_failure: allow, rate_limit: {%s, requests_per_unit: %d}}\n", decade, plenty)
	s := startSite(t, "--redis="+proxy.URL(), "--store-timeout=2s", "--redis-in-flight=1", rulesIn(t, rules))
	const delay, capacity = 300 * time.Millisecond, 427
	proxy.Set(proctest.Faults{Late: 1, Delay: delay})
	flood, l := newLoad(t), newLoad(t)
	flood.deadline, l.deadline = 5*time.Second, 5*time.Second
	l.open(50, always(s.client, request("deny", "user", "ann")))
	alone := l.during(func() { l.awaitCalls(200) }).of()
	for range 2 {
		flood.open(10*capacity/2, source{dial(t, s.GRPC), func(n int) *ratelimit.RateLimitRequest {
			return request("flooded", "user", fmt.Sprint(n%1000))
		}})
	}
	unasked := func() float64 { return s.Metric("envoy_rls_degraded_answers_total", `domain="flooded"`) }
	proctest.Eventually(t, "there is more than Redis answers for", func() bool { return unasked() > 0 })
	var quiet tally
	problem := ""
	for range tries { // of which a machine without time may spoil some
		quiet, problem = l.during(func() { l.awaitCalls(200) }).of(), ""
		if quiet.percentile(99) > 2*alone.percentile(99) {
			problem = fmt.Sprintf("the quiet one is held up: %s; alone it was %s\n", quiet, alone)
		}
		if quiet.marked > 0 || quiet.ok < quiet.calls {
			problem += fmt.Sprintf("of the quiet one's requests not all were decided by Redis: %s\n", quiet)
		}
		if problem == "" {
			break
		}
	}
	if problem != "" {
		t.Error(problem)
	}
	before := unasked()
	proctest.Eventually(t, "there still is", func() bool { return unasked() > before })
	flood.end()
	t.Logf("quiet, alone: %s", alone)
	t.Logf("quiet, beside the flood: %s", quiet)
	t.Logf("the flood: %s", flood.between(0, flood.begun()).of())
}

func TestTheServiceStartsWithoutRedis(t *testing.T) {
	t.Parallel()
	r := proctest.StartRedis(t, "--appendonly", "yes", "--appendfsync", "no")
	r.Kill()
	s := &site{Service: proctest.LaunchService(t, nil, "--redis="+r.URL(), rulesIn(t, policyRules())), t: t}
	s.client = dial(t, s.GRPC)
	l := s.policyLoad(250)
	l.awaitCalls(200)
	p := l.during(func() { l.awaitCalls(400) })
	if late := p.checkOutage(t); late != "" {
		t.Error(late)
	}
	if all := p.of("local", "allow", "deny"); all.marked < all.calls-p.few(all.calls) {
		t.Errorf("without Redis, policies have not answered all of %s", all)
	}
	o := &outage{redis: r}
	r.Restart()
	slow := o.awaitRecovery(s, l)
	for try := 1; slow != "" && try < tries; try++ {
		t.Log(slow)
		l.awaitCalm("before the next try")
		r.Kill()
		l.awaitCalls(400)
		r.Restart()
		slow = o.awaitRecovery(s, l)
	}
	if slow != "" {
		t.Error(slow)
	}
	l.awaitCalm("after")
	proctest.Eventually(t, "the service is ready", func() bool {
		code, _ := s.Get("/readyz")
		return code == http.StatusOK
	})
	l.end()
	o.checkCounts(s, l, 0)
}
