package drills

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// TestRedissClockStepsBack has it repeat five seconds, and the end of the window before: that of a failover to a server
// whose clock is behind.
func TestRedissClockStepsBack(t *testing.T) {
	t.Parallel()
	const (
		step  = 5 * time.Second
		limit = 60 // in a window, and at once from a bucket
	)
	r, setClock := proctest.StartRedisWithClock(t)
	rules := policyRules()
	const rule = "  - {key: user, on_store_failure: deny, rate_limit: {unit: second, "
	rules["window"] = rule + fmt.Sprintf("unit_multiplier: 10, requests_per_unit: %d}}\n", limit)
	rules["bucket"] = rule + fmt.Sprintf("requests_per_unit: 5, algorithm: token_bucket, burst: %d}}\n", limit)
	s := startSite(t, "--redis="+r.URL(), rulesIn(t, rules))
	l := s.policyLoad(125)
	l.awaitCalm("before")
	var began time.Time
	var flood *load
	inOneWindow(t, func() bool {
		if flood != nil {
			flood.end()
		}
		awaitRoom(t, period-time.Second)
		began, flood = time.Now(), newLoad(t)
		flood.open(150, always(s.client, request("window", "user", "ann")), always(s.client, request("bucket", "user", "ann")))
		refused := func(p phase, domain string) bool {
			got := p.of(domain)
			return got.ok <= got.calls/5 && got.over-got.marked+got.markedOK >= got.calls/2 // by Redis
		}
		proctest.Eventually(t, "all is admitted that will be", func() bool {
			p := flood.during(func() { flood.awaitCalls(20) })
			return refused(p, "window") && refused(p, "bucket")
		})
		return window().Equal(began.Truncate(period))
	})
	setClock(-step)
	stepped, from := time.Now(), flood.begun()
	calls := l.during(func() {
		proctest.Eventually(t, "what was stepped back passes again", func() bool { return time.Since(stepped) > step*4/5 })
	})
	first, again := flood.between(0, from), flood.between(from, flood.begun())
	// On a machine without time, it may have passed for longer.
	again = slices.DeleteFunc(again, func(c call) bool { return c.began.Add(c.took).Sub(stepped) > step })
	t.Logf("window: %s, then %s", first.of("window"), again.of("window"))
	t.Logf("bucket: %s, then %s", first.of("bucket"), again.of("bucket"))
	if late := calls.checkOutage(t); late != "" {
		t.Error(late)
	}
	if all := calls.of(); all.marked > calls.few(all.calls) {
		t.Errorf("policies have answered %s", all)
	}
	if n := first.of("window").ok + again.of("window").ok; n > limit {
		t.Errorf("in a window of %d there were %d admitted", limit, n)
	}
	if n, most := first.of("bucket").ok+again.of("bucket").ok, limit+5*int(stepped.Sub(began)/time.Second+1); n > most {
		t.Errorf("a bucket has let %d pass, more than %d", n, most)
	}
	proctest.Eventually(t, "the bucket is filled again", func() bool {
		p := flood.during(func() { flood.awaitCalls(20) })
		return p.of("bucket").ok > 0
	})
	l.awaitCalm("after")
}
