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

func TestAPausingRedisGetsNoStormOfHandshakes(t *testing.T) {
	t.Parallel()
	proxy := proctest.StartProxy(t, proctest.StartRedis(t).Addr, 1)
	s := startSite(t, "--redis="+proxy.URL(), rulesIn(t, policyRules()))
	l := s.policyLoad(625)
	l.awaitCalm("before")
	began, accepted := time.Now(), proxy.Accepted()
	p := l.during(func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for range 15 {
			proxy.Hold()
			<-tick.C
			proxy.Release()
			for range 3 {
				<-tick.C
			}
		}
	})
	accepted = proxy.Accepted() - accepted
	t.Logf("%d connections in %s; %s", accepted, time.Since(began), p.of())
	// 20 at once, and 10 a second.
	if most := 20 + int(10*time.Since(began).Seconds()); accepted > most {
		t.Errorf("%d connections were opened in %s", accepted, time.Since(began))
	}
	if late := p.checkOutage(t); late != "" {
		t.Error(late)
	}
	l.awaitCalm("after")
}
