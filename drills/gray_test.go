package drills

import (
	"fmt"
	"testing"
	"time"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// TestRedisIsLateNowAndThen has a Redis that is neither well nor gone: three replies of ten take longer than a call
// can wait.
func TestRedisIsLateNowAndThen(t *testing.T) {
	t.Parallel()
	proxy := proctest.StartProxy(t, proctest.StartRedis(t).Addr, 1)
	s := startSite(t, "--redis="+proxy.URL(), rulesIn(t, policyRules()))
	l := s.policyLoad(250)
	l.awaitCalm("before")
	var problem string
	for range tries { // of which a machine without time may spoil some
		opened := s.logged("store is not asked for now")
		proxy.Set(proctest.Faults{Late: 0.3, Delay: 15 * time.Millisecond})
		p := l.during(func() { l.awaitCalls(1250) })
		proxy.Set(proctest.Faults{})
		problem = p.checkOutage(t)
		all := p.of()
		if n := all.marked + sum(all.failed); n > all.calls/2+p.few(all.calls) {
			problem += fmt.Sprintf("policies have answered %d of %s\n", n, all)
		}
		// Where the machine spoils a fifth of the calls as well, half of them fail, and it is right to open.
		if n := s.logged("store is not asked for now") - opened; n > 1 && p.few(all.calls) < all.calls/5 {
			problem += fmt.Sprintf("the breaker has opened %d times", n)
		}
		l.awaitCalm("after")
		if problem == "" {
			return
		}
	}
	t.Error(problem)
}

// TestAPausingRedisGetsNoStormOfHandshakes has 500 calls a second over TLS: a connection is a handshake.
func TestAPausingRedisGetsNoStormOfHandshakes(t *testing.T) {
	t.Parallel()
	a := proctest.NewAuthority(t)
	a.Sign("server")
	a.Sign("client")
	_, secured := proctest.StartSecureRedis(t, a, "server")
	proxy := proctest.StartProxy(t, secured, 1)
	s := startSite(t, append(secure(a), "--redis=rediss://"+proxy.Addr, rulesIn(t, policyRules()))...)
	l := s.policyLoad(625)
	l.awaitCalm("before")
	late := ""
	for range tries { // of which a machine without time may spoil some
		began, accepted := time.Now(), proxy.Accepted()
		p := l.during(func() { pause(proxy, 15) })
		accepted = proxy.Accepted() - accepted
		t.Logf("%d connections in %s; %s", accepted, time.Since(began), p.of())
		// 20 at once, and 10 a second.
		if most := 20 + int(10*time.Since(began).Seconds()); accepted > most {
			t.Errorf("%d connections were opened in %s", accepted, time.Since(began))
		}
		l.awaitCalm("after")
		if late = p.checkOutage(t); late == "" {
			return
		}
	}
	t.Error(late)
}

// pause has nothing come or go for 50 ms, some times, five a second.
func pause(proxy *proctest.Proxy, times int) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for range times {
		proxy.Hold()
		<-tick.C
		proxy.Release()
		for range 3 {
			<-tick.C
		}
	}
}
