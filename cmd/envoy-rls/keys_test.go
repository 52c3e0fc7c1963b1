package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

const keyRules = `
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: day, requests_per_unit: 1000}
    descriptors: [{key: path, rate_limit: {unit: minute, requests_per_unit: 10}}]
  - {key: second, rate_limit: {unit: second, requests_per_unit: 20}}
`

// startReplacing starts the service with the keys of envoyproxy/ratelimit.
func startReplacing(t *testing.T, args ...string) *proctest.Service {
	t.Helper()
	file := filepath.Join(t.TempDir(), "shop.yaml")
	if err := os.WriteFile(file, []byte(keyRules), 0o600); err != nil {
		t.Fatal(err)
	}
	return proctest.StartService(t, append([]string{"--rules=" + file, "--store-timeout=5s", "--key-prefix=p:",
		"--key-format=envoyproxy-ratelimit"}, args...)...)
}

// oldReplica counts as a replica of envoyproxy/ratelimit does: under its names, by its own clock, with INCRBY and EXPIRE in
// a pipeline.
type oldReplica struct {
	*testing.T
	client *redis.Client
	limit  int64
	window time.Duration
}

// name is the counter of the requests of shopRequest in a window.
func (o *oldReplica) name(key string, now time.Time) string {
	length := int64(o.window / time.Second)
	return fmt.Sprintf("p:shop_%s_the same_%d", key, now.Unix()/length*length)
}

// hit tells whether a hit is within the limit.
func (o *oldReplica) hit(key string) bool {
	name := o.name(key, time.Now())
	p := o.client.Pipeline()
	after := p.IncrBy(context.Background(), name, 1)
	p.Expire(context.Background(), name, o.window+150*time.Second)
	if _, err := p.Exec(context.Background()); err != nil {
		o.Errorf("INCRBY and EXPIRE: %v", err)
	}
	return after.Val() <= o.limit
}

// both has the service and an old replica count at once for as long as more says so, and returns how many hits there were
// and how many were within the limit.
func both(t *testing.T, service *proctest.Service, old *oldReplica, key string, more func(asked int64) bool) (asked, within int64) {
	t.Helper()
	client := ratelimit.NewRateLimitServiceClient(dial(t, service.GRPC))
	var all, good atomic.Int64
	loop := func(hit func() bool) {
		for more(all.Add(1)) {
			if hit() {
				good.Add(1)
			}
		}
		all.Add(-1)
	}
	var workers sync.WaitGroup
	for range 16 {
		workers.Go(func() {
			loop(func() bool {
				answer, err := client.ShouldRateLimit(context.Background(), shopRequest(key))
				if err != nil {
					t.Errorf("a call: %v", err)
				}
				return answer.GetOverallCode() == ratelimit.RateLimitResponse_OK
			})
		})
		workers.Go(func() { loop(func() bool { return old.hit(key) }) })
	}
	workers.Wait()
	return all.Load(), good.Load()
}

func TestTheReplacedServiceAndThisOneShareACounterAndLoseNoHit(t *testing.T) {
	server := proctest.StartRedis(t)
	service := startReplacing(t, "--compat=envoyproxy-ratelimit", "--redis="+server.URL())
	old := &oldReplica{t, server.Client(), 1000, 24 * time.Hour}
	_, within := both(t, service, old, "user", func(asked int64) bool { return asked <= 10_000 })
	name := old.name("user", time.Now())
	if count, err := old.client.Get(t.Context(), name).Int64(); err != nil || count != 10_000 || within != 1000 {
		t.Errorf("%s counts %d (%v), want 10000 hits; %d were within the limit, want 1000", name, count, err, within)
	}
}

// TestWindowsOfTheReplacedServiceRollAtTheSameSecond has limits per second in a Redis of their own, as that service has.
func TestWindowsOfTheReplacedServiceRollAtTheSameSecond(t *testing.T) {
	server, perSecond := proctest.StartRedis(t), proctest.StartRedis(t)
	service := startReplacing(t, "--compat=envoyproxy-ratelimit", "--redis="+server.URL(), "--redis-per-second",
		"--redis-per-second-url="+perSecond.URL())
	old := &oldReplica{t, perSecond.Client(), 20, time.Second}
	var mu sync.Mutex
	seconds, began := map[int64]bool{}, time.Now().Unix()
	asked, within := both(t, service, old, "second", func(int64) bool {
		mu.Lock()
		defer mu.Unlock()
		seconds[time.Now().Unix()] = true
		return len(seconds) <= 4
	})
	most := int(time.Now().Unix() - began + 1) // of windows, if all roll at the same second
	var hits, admitted int64
	names, err := old.client.Keys(t.Context(), "p:shop_*").Result()
	for _, name := range names {
		n, err := old.client.Get(t.Context(), name).Int64()
		if err != nil {
			t.Error(err)
		}
		hits, admitted = hits+n, admitted+min(n, old.limit)
	}
	if err != nil || len(names) < 2 || len(names) > most || hits != asked || admitted != within {
		t.Errorf("%d counters (%v) have %d hits, want %d, and admitted %d, want %d", len(names), err, hits, asked, admitted, within)
	}
	if strays, err := server.Client().Keys(t.Context(), "p:shop_*").Result(); err != nil || len(strays) > 0 {
		t.Errorf("beside limits per second there are %q, %v", strays, err)
	}
}

func TestACountGoesOnInBothDirectionsOfAnUpdate(t *testing.T) {
	server := proctest.StartRedis(t)
	old := &oldReplica{t, server.Client(), 1000, 24 * time.Hour}
	for range 400 {
		old.hit("user")
	}
	service := startReplacing(t, "--redis="+server.URL())
	newLoad(t, service).left(map[string]uint32{"user": 600})
	newLoad(t, service).admitsExactly(300, 300, shopRequest("user"))
	service.End()
	if name := old.name("user", time.Now()); !old.hit("user") || old.client.Get(t.Context(), name).Val() != "701" {
		t.Errorf("after the way back %s is %s, want 701", name, old.client.Get(t.Context(), name).Val())
	}
	newLoad(t, startReplacing(t, "--redis="+server.URL())).admitsExactly(299, 1000, shopRequest("user"))
}

func TestADenialUnderANameOfTheReplacedServiceIsRememberedForItsWindow(t *testing.T) {
	server := proctest.StartRedis(t)
	service := startReplacing(t, "--redis="+server.URL(), "--deny-cache=1MiB")
	client := ratelimit.NewRateLimitServiceClient(dial(t, service.GRPC))
	req := shopRequest("second")
	req.Descriptors[0].HitsAddend = wrapperspb.UInt64(20) // all of a window: on a busy machine, too, it is full soon
	passes := func() bool {
		answer, err := client.ShouldRateLimit(t.Context(), req)
		return err == nil && answer.GetOverallCode() == ratelimit.RateLimitResponse_OK
	}
	for range 2 {
		proctest.Eventually(t, "a window admits", passes)
		proctest.Eventually(t, "and is full", func() bool { return !passes() })
	}
	proctest.Eventually(t, "denials come from memory", func() bool {
		passes()
		return service.Metric("envoy_rls_deny_cache_hits_total", `answered="whole"`) > 0
	})
}

func TestWhatWasAdmittedInAnOutageIsGivenBackUnderTheNameOfTheReplacedService(t *testing.T) {
	server := proctest.StartRedis(t)
	service := startReplacing(t, "--redis="+server.URL())
	l := newLoad(t, service)
	proctest.Eventually(t, "Redis is asked", func() bool { return service.Metric("envoy_rls_store_up") == 1 })
	server.Kill()
	l.admitsExactly(100, 100, shopRequest("user"))
	server.Restart()
	old := &oldReplica{t, server.Client(), 1000, 24 * time.Hour}
	proctest.Eventually(t, "what is owed is given back", func() bool {
		_, _ = l.clients[0].ShouldRateLimit(t.Context(), shopRequest("second")) // by which the service finds out
		return old.client.Get(t.Context(), old.name("user", time.Now())).Val() == "100"
	})
}
