package drills

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// bound is what n replicas may admit of a limit by their shares: L + 2√(L·N) + N.
func bound(limit, n int) int {
	return limit + int(2*math.Sqrt(float64(limit*n))) + n
}

// fleet is some replicas with one rule, and clients that call them all.
type fleet struct {
	rules string
	sites []*site
	load  *load
}

// startFleet starts replicas with further arguments each, whose only rule has the limit.
func startFleet(t *testing.T, limit int, args ...[]string) *fleet {
	t.Helper()
	rules := rulesIn(t, map[string]string{"shop": fmt.Sprintf(
		"  - {key: user, rate_limit: {unit: second, unit_multiplier: 10, requests_per_unit: %d}}\n", limit)})
	f := &fleet{rules: rules, load: newLoad(t)}
	for _, a := range args {
		f.add(t, a...)
	}
	return f
}

func (f *fleet) add(t *testing.T, args ...string) {
	t.Helper()
	f.sites = append(f.sites, startSite(t, append(args, f.rules)...))
}

// flood calls some replicas, at so many calls a second in all.
func (f *fleet) flood(perSecond int, sites ...*site) {
	var sources []source
	for _, s := range sites {
		sources = append(sources, always(s.client, request("shop", "user", "ann")))
	}
	f.load.open(perSecond, sources...)
}

// awaitRefusals waits until the replicas refuse: the window has given all that it will.
func (f *fleet) awaitRefusals(t *testing.T) {
	t.Helper()
	proctest.Eventually(t, "all is admitted that will be", func() bool {
		p := f.load.during(func() { f.load.awaitCalls(200) })
		got := p.of()
		return got.ok == 0 && got.over >= got.calls/2
	})
}

// period is that of the limits of fleets, and window the beginning of the present one.
const period = 10 * time.Second

func window() time.Time { return time.Now().Truncate(period) }

// awaitRoom waits until so much time is left of a window.
func awaitRoom(t *testing.T, room time.Duration) {
	t.Helper()
	proctest.Eventually(t, fmt.Sprintf("%s are left of a window", room), func() bool {
		return time.Until(window().Add(period)) >= room
	})
}

// inOneWindow tries what belongs into a window until none has ended meanwhile.
func inOneWindow(t *testing.T, try func() (kept bool)) {
	t.Helper()
	for range tries { // of which a machine without time may spoil some
		if try() {
			return
		}
	}
	t.Errorf("a window ended in each of %d tries", tries)
}

// admitted floods from the beginning on until all is admitted that will be, and returns what was. It is not kept if the
// window has ended in which it began.
func (f *fleet) admitted(t *testing.T, begin func()) (got tally, kept bool) {
	t.Helper()
	var w time.Time
	p := f.load.during(func() {
		begin()
		w = window()
		f.awaitRefusals(t)
	})
	if kept = window().Equal(w); !kept {
		f.load.end()
	}
	return p.of(), kept
}

func TestThreeReplicasWithoutRedisAdmitNoMoreThanTheirShares(t *testing.T) {
	t.Parallel()
	inOneWindow(t, func() bool { return threeAdmitTheirShares(t) })
}

func threeAdmitTheirShares(t *testing.T) (kept bool) {
	t.Helper()
	const (
		limit = 300
		n     = 3
	)
	r := proctest.StartRedis(t)
	args := []string{"--redis=" + r.URL(), fmt.Sprintf("--replicas=%d", n)}
	f := startFleet(t, limit, args, args, args)
	awaitRoom(t, 7*time.Second)
	w := window()
	f.flood(300, f.sites...)
	var granted tally
	proctest.Eventually(t, "more than half is granted, so that replicas note what is left", func() bool {
		granted = f.load.between(0, f.load.begun()).of()
		return granted.ok > limit*6/10
	})
	// What each has heard may be some calls of others ago.
	room := limit - granted.ok + 2*n
	p, kept := f.admitted(t, r.Kill)
	if !kept || !window().Equal(w) {
		f.load.end()
		return false
	}
	t.Logf("Redis granted %d; then with %d left %s; the bound is %d", granted.ok, room, p, bound(room, n))
	if p.ok < room/2-p.late || p.ok > bound(room, n) {
		t.Errorf("with %d left, the bound is %d for %s", room, bound(room, n), p)
	}
	p, kept = f.admitted(t, func() { awaitRoom(t, 9*time.Second) })
	t.Logf("then %s; the bound is %d", p, bound(limit, n))
	if kept && (p.ok < limit-p.late || p.ok > bound(limit, n)) {
		t.Errorf("in a later window the bound is %d for %s", bound(limit, n), p)
	}
	return kept
}

// TestHalfOfTheReplicasAreCutOffWhileTheirNumberDoubles has two replicas, then four, of which two can't reach Redis.
// Those two decide by their shares, of the number of replicas that they knew of; the others by Redis.
func TestHalfOfTheReplicasAreCutOffWhileTheirNumberDoubles(t *testing.T) {
	t.Parallel()
	inOneWindow(t, func() bool { return halfOfThemAreCutOff(t) })
}

func halfOfThemAreCutOff(t *testing.T) (kept bool) {
	t.Helper()
	const (
		limit = 200
		n     = 4
	)
	r := proctest.StartRedis(t)
	var proxies []*proctest.Proxy
	var args [][]string
	for i := range n {
		proxies = append(proxies, proctest.StartProxy(t, r.Addr, uint64(i)))
		args = append(args, []string{"--redis=" + proxies[i].URL()})
	}
	f := startFleet(t, limit, args[0], args[1])
	for i := range 2 {
		proctest.Eventually(t, "both replicas know of each other", func() bool { return f.sites[i].Metric("envoy_rls_replicas") == 2 })
	}
	f.add(t, args[2]...)
	f.add(t, args[3]...)
	proctest.Eventually(t, "the last replica knows of all", func() bool { return f.sites[3].Metric("envoy_rls_replicas") == n })
	awaitRoom(t, 7*time.Second)
	for _, i := range []int{1, 3} {
		proxies[i].Refuse()
		proxies[i].Cut()
	}
	begin := func() { f.flood(400, f.sites...) }
	for _, when := range []string{"first", "second"} {
		p, kept := f.admitted(t, begin)
		if !kept {
			return false
		}
		t.Logf("in the %s window %s; the bound is %d", when, p, limit+bound(limit, n))
		if p.ok < limit-p.late || p.ok > limit+bound(limit, n) {
			t.Errorf("in the %s window the bound is %d for %s", when, limit+bound(limit, n), p)
		}
		begin = func() { awaitRoom(t, 9*time.Second) } // of the next one
	}
	return true
}
