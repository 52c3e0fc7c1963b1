package e2e

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// load is requests at a steady pace, until stop.
type load struct {
	passed, refused, others atomic.Int64
	failed                  chan string // the first few that neither passed nor were refused
	end                     chan struct{}
	done                    sync.WaitGroup
}

// load has so many clients send a hundred requests a second each.
func (g *gateway) load(r request, clients int) *load {
	l := &load{failed: make(chan string, 10), end: make(chan struct{})}
	for range clients {
		l.done.Go(func() {
			pace := time.NewTicker(10 * time.Millisecond)
			defer pace.Stop()
			for {
				select {
				case <-pace.C:
					l.note(g.try(r))
				case <-l.end:
					return
				}
			}
		})
	}
	return l
}

func (l *load) note(a answer, err error) {
	switch {
	case err == nil && a.status == http.StatusOK:
		l.passed.Add(1)
		return
	case err == nil && a.status == http.StatusTooManyRequests:
		l.refused.Add(1)
		return
	}
	l.others.Add(1)
	select {
	case l.failed <- fmt.Sprintf("status %d, error %v", a.status, err):
	default:
	}
}

func (l *load) stop() {
	close(l.end)
	l.done.Wait()
	close(l.failed)
}

func TestNoCallFailsWhileAReplicaDrains(t *testing.T) {
	t.Parallel() // it waits for the delay
	redis := proctest.StartRedis(t)
	rules := rulesIn(t, map[string]string{
		"steady": `- {key: all, value: "yes", rate_limit: {unit: year, requests_per_unit: 1000000}}`,
	})
	staying := exactService(t, "--redis="+redis.URL(), rules)
	leaving := proctest.StartService(t, "--redis="+redis.URL(), rules, "--store-timeout=5s", "--drain-delay=6s") // longer than Envoy may stand still
	service := replicas("service", staying, leaving)
	service.CheckEvery = "0.2s"
	g := startGateway(t, bootstrap{
		Listeners: []listener{{Name: "ingress", Service: "service", Deny: true}},
		Services:  []cluster{service},
		Routes:    []route{{"steady", limits(t, everybody)}},
	})
	r := request{listener: "ingress", path: "steady"}
	l := g.load(r, 4)
	for _, s := range []*proctest.Service{staying, leaving} {
		proctest.Eventually(t, "both replicas answer", func() bool { return s.Metric("envoy_rls_requests_total") > 100 })
	}

	leaving.Signal(syscall.SIGTERM)
	if code := leaving.Wait(); code != 0 {
		t.Errorf("after SIGTERM the exit code is %d", code)
	}
	after := l.passed.Load()
	proctest.Eventually(t, "the other replica serves on", func() bool { return l.passed.Load() > after+200 })
	l.stop()
	for f := range l.failed {
		t.Errorf("a call failed: %s", f)
	}
	if n := l.refused.Load(); n > 0 {
		t.Errorf("%d calls were refused", n)
	}
	// Both counted in one place, and each call once.
	left := fmt.Sprint(1000000 - l.passed.Load() - 1)
	g.answers(t, r, "200  x-ratelimit-remaining: "+left)
}
