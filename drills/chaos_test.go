package drills

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// TestChaosBetweenTheServiceAndRedis has replies sliced, late, cut off and wrong, and connections cut.
func TestChaosBetweenTheServiceAndRedis(t *testing.T) {
	t.Parallel()
	proxy := proctest.StartProxy(t, proctest.StartRedis(t).Addr, 20_26)
	// With a deny cache, a wrong reply that refuses would be believed for a second.
	s := startSite(t, "--redis="+proxy.URL(), "--deny-cache=0", rulesIn(t, policyRules()))
	l := s.policyLoad(250)
	l.awaitCalm("before")
	for _, swap := range []float64{0, .05} {
		p := l.during(func() {
			proxy.Set(proctest.Faults{Late: .05, Delay: 5 * time.Millisecond, Slice: .1, Truncate: .02, Swap: swap})
			for range 5 {
				l.awaitCalls(150)
				proxy.Cut()
			}
			proxy.Set(proctest.Faults{})
		})
		for _, policy := range []string{"local", "allow"} {
			got := p.of(policy)
			t.Logf("%s: %s", policy, got)
			over := got.over
			if swap > 0 { // a reply that is wrong, and still one, may refuse, and so does local that goes by it in an outage
				over -= got.marked - got.markedOK
			}
			if n := got.late + over + sum(got.failed); n > p.few(got.calls) {
				t.Errorf("%s: %d are wrong or late of %s", policy, n, got)
			}
		}
		l.awaitCalm("after")
	}
	l.end()
	all := l.between(0, l.begun()).of("local")
	unsure := all.late + all.over + s.unsure("local") + int(s.Metric("envoy_rls_given_back_hits_total", `result="error"`))
	proctest.Eventually(t, "Redis has counted what was admitted", func() bool {
		used := plenty - s.left("local", "user", "ann")
		return used >= all.ok-unsure && used <= all.ok+unsure
	})
	if n := s.logged("a fault in this program"); n > 0 {
		t.Errorf("%d calls have failed by faults:\n%s", n, s.Output())
	}
}

// soak is how long the soak lasts.
func soak(t *testing.T) time.Duration {
	text := os.Getenv("DRILL_SOAK")
	if text == "" {
		return 60 * time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("DRILL_SOAK: %v", err)
	}
	return d
}

// use is what a process has taken of the machine.
type use struct{ goroutines, files, memory float64 }

func (s *site) use() use {
	s.t.Helper()
	return use{s.Metric("go_goroutines"), s.Metric("process_open_fds"), s.Metric("process_resident_memory_bytes")}
}

// String tells the numbers.
func (u use) String() string {
	return fmt.Sprintf("%v goroutines, %v files, %.0f MiB", u.goroutines, u.files, u.memory/(1<<20))
}

func TestManyRestartsOfRedisLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	r := proctest.StartRedis(t)
	proxy := proctest.StartProxy(t, r.Addr, 1)
	s := startSite(t, "--redis="+proxy.URL(), rulesIn(t, policyRules()))
	l := s.policyLoad(250)
	restart := func() {
		r.Restart()
		l.awaitCalls(250)
		proxy.Cut()
		l.awaitCalls(250)
	}
	restart()
	restart()
	l.awaitCalm("after two restarts")
	began, before, restarts := time.Now(), s.use(), 0
	p := l.during(func() {
		for ; time.Since(began) < soak(t); restarts++ {
			restart()
		}
	})
	if late := p.checkOutage(t); late != "" {
		t.Error(late)
	}
	l.awaitCalm("in the end")
	after := s.use()
	t.Logf("before %s; after %d restarts %s", before, restarts, after)
	if after.goroutines > before.goroutines+50 || after.files > before.files+20 || after.memory > before.memory*1.3+(16<<20) {
		t.Errorf("before there were %s, and after %d restarts %s", before, restarts, after)
	}
}
