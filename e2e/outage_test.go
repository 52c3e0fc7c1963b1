package e2e

import (
	"fmt"
	"net/http"
	"syscall"
	"testing"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// storeTimeout is more than a busy machine needs.
const storeTimeout = "--store-timeout=20s"

// twoModes are an Envoy that lets requests pass when there is no answer in so long a time, and one that refuses them.
func twoModes(service, timeout string) []listener {
	return []listener{
		{Name: "open", Service: service, Timeout: timeout},
		{Name: "closed", Service: service, Timeout: timeout, Deny: true},
	}
}

// eventually asks until the answer is as in a scenario's script.
func (g *gateway) eventually(t *testing.T, r request, want string) {
	t.Helper()
	proctest.Eventually(t, fmt.Sprintf("%s answers /%s by %s", r.listener, r.path, want), func() bool {
		return len(g.get(t, r).differsFrom(parts(want))) == 0
	})
}

func (g *gateway) answers(t *testing.T, r request, want string) {
	t.Helper()
	for _, problem := range g.get(t, r).differsFrom(parts(want)) {
		t.Errorf("%s answers /%s by %s, not by %s", r.listener, r.path, problem, want)
	}
}

func TestEnvoysFailureModeDecidesWhileTheServiceIsAway(t *testing.T) {
	for _, outage := range []struct {
		name        string
		timeout     string // Envoy's
		begin, end  func(s *proctest.Service)
		forgetsHits bool // what was counted in memory
	}{
		{
			name:    "frozen",
			timeout: "1s", // it is waited for
			begin:   func(s *proctest.Service) { s.Signal(syscall.SIGSTOP) },
			end:     func(s *proctest.Service) { s.Signal(syscall.SIGCONT) },
		},
		{
			name:        "killed",
			begin:       func(s *proctest.Service) { s.Kill() },
			end:         func(s *proctest.Service) { s.Restart() },
			forgetsHits: true,
		},
	} {
		t.Run(outage.name, func(t *testing.T) {
			onBothStores(t, func(t *testing.T, store string) {
				s := proctest.StartService(t, store, storeTimeout, rulesIn(t, map[string]string{
					"away": `- {key: all, value: "yes", rate_limit: {unit: day, requests_per_unit: 1}}`,
				}))
				g := startGateway(t, bootstrap{
					Listeners: twoModes("service", outage.timeout),
					Services:  []cluster{replicas("service", s)},
					Routes:    []route{{"away", limits(t, everybody)}},
				})
				open, closed := request{listener: "open", path: "away"}, request{listener: "closed", path: "away"}
				g.eventually(t, open, "429")
				g.eventually(t, closed, "429")

				outage.begin(s)
				g.answers(t, open, "200  no x-ratelimit-limit")
				g.answers(t, closed, "503  no x-ratelimit-limit")

				outage.end(s)
				want := http.StatusTooManyRequests
				if outage.forgetsHits && store == inMemory {
					want = http.StatusOK
				}
				if got := g.firstCounted(t, open); got.status != want {
					t.Errorf("back again, the service's first answer is %d, not %d", got.status, want)
				}
				g.eventually(t, open, "429")
				g.eventually(t, closed, "429")
			})
		})
	}
}

// firstCounted is the first answer that tells of a limit, so that it is the service's.
func (g *gateway) firstCounted(t *testing.T, r request) answer {
	t.Helper()
	var a answer
	proctest.Eventually(t, "the service answers", func() bool {
		a = g.get(t, r)
		return a.header.Get("x-ratelimit-limit") != ""
	})
	return a
}

func TestOnStoreFailureDecidesWhileRedisIsAway(t *testing.T) {
	rules, routes := map[string]string{}, []route(nil)
	for _, policy := range []string{"error", "allow", "deny"} {
		rules[policy] = fmt.Sprintf(
			`- {key: all, value: "yes", on_store_failure: %s, rate_limit: {unit: day, requests_per_unit: 1}}`, policy)
		routes = append(routes, route{policy, limits(t, everybody)})
	}
	redis := proctest.StartRedis(t)
	// A deny cache would refuse for a second longer what was exhausted.
	s := proctest.StartService(t, "--redis="+redis.URL(), "--deny-cache=0", storeTimeout, rulesIn(t, rules))
	g := startGateway(t, bootstrap{
		Listeners: twoModes("service", ""),
		Services:  []cluster{replicas("service", s)},
		Routes:    routes,
	})
	g.countsOneADay(t)
	redis.Kill()
	for _, want := range []struct{ policy, open, closed string }{
		{"error", "200  no x-ratelimit-limit", "503  no x-ratelimit-limit"},
		{"allow", "200  no x-ratelimit-limit", "200  no x-ratelimit-limit"},
		{"deny", "429", "429"},
	} {
		g.answers(t, request{listener: "open", path: want.policy}, want.open)
		g.answers(t, request{listener: "closed", path: want.policy}, want.closed)
	}
	redis.Restart() // empty
	g.countsOneADay(t)
}

// countsOneADay waits until the store answers for each policy: one request passes, the next does not.
func (g *gateway) countsOneADay(t *testing.T) {
	t.Helper()
	for _, policy := range []string{"error", "allow", "deny"} {
		r := request{listener: "closed", path: policy}
		g.eventually(t, r, "200  x-ratelimit-remaining: 0")
		g.eventually(t, r, "429  x-ratelimit-remaining: 0")
	}
}
