package main

import (
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/envoy-rls/envoy-rls/pkg/denycache"
	"github.com/envoy-rls/envoy-rls/pkg/fallback"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
	"github.com/envoy-rls/envoy-rls/pkg/memstore"
	"github.com/envoy-rls/envoy-rls/pkg/redisstore"
)

// openStore opens the store that the settings say: memory; or Redis, behind what remembers denials, behind what decides
// while it is away.
func (srv *server) openStore() error {
	if srv.settings.storeKind() == storeMemory {
		srv.openMemory()
		return nil
	}
	redis.SetLogger(redisLog{srv.log})
	store, err := srv.openRedis()
	if err != nil {
		return err
	}
	srv.census = newCensus(srv.settings, srv.redis, srv.rulesHash)
	srv.local = fallback.New(srv.remembering(store), fallback.Options{
		Replicas: srv.census.count, Share: fallback.Share(srv.settings.LocalShare),
		MemoryLimit: int(srv.settings.MemoryLimit), GaveBack: srv.metrics.GaveBack,
	})
	srv.store = srv.local
	srv.metrics.Queues(srv.redis.Queued)
	srv.gauge("store_clock_offset_seconds", "By how much Redis's clock is ahead.", func() float64 { return srv.local.ClockOffset().Seconds() })
	srv.gauge("store_up", "1 while Redis is asked.", func() float64 {
		if srv.storeUp() {
			return 1
		}
		return 0
	})
	connections := srv.metrics.GaugeFunc("store_connections", "Connections to Redis.", "state")
	connections("used", func() float64 { all, idle := srv.redis.Connections(); return float64(all - idle) })
	connections("idle", func() float64 { _, idle := srv.redis.Connections(); return float64(idle) })
	srv.metrics.ReplacedGauge("ratelimit.redis_pool.cx_active", func() float64 { all, _ := srv.redis.Connections(); return float64(all) })
	if srv.perSecond != nil {
		srv.metrics.ReplacedGauge("ratelimit.redis_per_second_pool.cx_active", func() float64 { all, _ := srv.perSecond.Connections(); return float64(all) })
	}
	srv.gauge("rules_drift", "Replicas that have run other rules than this one for longer than a minute, as far as is known.", func() float64 { return float64(srv.census.drift.count()) })
	srv.gauge("replicas", "Replicas that share the limits, as far as is known.", func() float64 { return float64(srv.census.count()) })
	return nil
}

// storeUp tells whether Redis is asked, both if there are two.
func (srv *server) storeUp() bool {
	return srv.redis.Up() && (srv.perSecond == nil || srv.perSecond.Up())
}

// perSecondLanes begins the names of the second Redis's lanes.
const perSecondLanes = "per-second-"

// gauge adds a gauge without labels.
func (srv *server) gauge(name, help string, value func() float64) {
	srv.metrics.GaugeFunc(name, help, "")("", value)
}

func (srv *server) openMemory() {
	store := memstore.New(memstore.Options{MemoryLimit: int(srv.settings.MemoryLimit)})
	srv.store, srv.counters = store, append(srv.counters, store)
	evicted := srv.metrics.CounterFunc("memory_evictions_total", "Counters that made room for others.", "state")
	evicted("stale", func() float64 { return float64(store.Evictions().Stale) })
	evicted("with_room", func() float64 { return float64(store.Evictions().WithRoom) })
	evicted("denying", func() float64 { return float64(store.Evictions().Denying) })
}

// openRedis opens Redis, and a second one for limits of less than a minute if there is to be one.
func (srv *server) openRedis() (limiter.Store, error) {
	store, err := srv.openServer(srv.settings.redisOptions(srv.certs), "")
	if err != nil {
		return nil, fmt.Errorf("--redis (REDIS_URL): %w", err)
	}
	srv.redis = store
	if !srv.settings.RedisPerSecond {
		return store, nil
	}
	second, err := srv.openServer(srv.settings.perSecondOptions(srv.certs), perSecondLanes)
	if err != nil {
		return nil, fmt.Errorf("--redis-per-second-url (REDIS_PERSECOND_URL): %w", err)
	}
	srv.perSecond = second
	return redisPair{store, second}.store(), nil
}

func (srv *server) openServer(o redisstore.Options, lanes string) (*redisstore.Store, error) {
	o.Called = srv.storeCalled
	srv.traceStore(&o, lanes)
	o.BreakerChanged = func(lane string, s redisstore.BreakerState, cause error) { srv.breakerChanged(lanes+lane, s, cause) }
	store, err := redisstore.Open(o)
	if err != nil {
		return nil, err
	}
	srv.counters = append(srv.counters, store)
	breaker := srv.metrics.GaugeFunc("breaker_state", "0 while Redis is asked, 1 while it is tried, 2 while it is not.", "lane")
	for name, state := range store.Lanes {
		breaker(lanes+name, func() float64 { return float64(state()) })
	}
	return store, nil
}

// remembering puts the deny cache in front of a store, if there is to be one.
func (srv *server) remembering(inner limiter.Store) limiter.Store {
	o := srv.settings.denyCacheOptions()
	if o.Size == 0 {
		return inner
	}
	store := denycache.New(inner, o)
	srv.denials = store
	answered := srv.metrics.CounterFunc("deny_cache_hits_total", "Requests answered from memory.", "answered")
	answered("whole", func() float64 { return float64(store.Answers().Whole) })
	answered("partly", func() float64 { return float64(store.Answers().Partial) })
	return store
}

// breakerChanged tells of a breaker, and gives back what was admitted while it was open.
func (srv *server) breakerChanged(lane string, s redisstore.BreakerState, cause error) {
	if s == redisstore.BreakerOpen {
		srv.log.Warn("store is not asked for now, on_store_failure answers", "store", "redis", "lane", lane, "error", cause)
		return
	}
	srv.log.Info("store is asked again", "store", "redis", "lane", lane)
	srv.local.Recovered()
}
