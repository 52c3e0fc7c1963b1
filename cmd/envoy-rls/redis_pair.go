package main

import (
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/limiter"
	"github.com/envoy-rls/envoy-rls/pkg/parts"
	"github.com/envoy-rls/envoy-rls/pkg/redisstore"
)

// redisPair is the Redis that counters are in, and a second one for limits of less than a minute, or nil.
type redisPair struct {
	main, perSecond *redisstore.Store
}

// store is a Store over both.
func (p redisPair) store() limiter.Store {
	if p.perSecond == nil {
		return p.main
	}
	return parts.New([]limiter.Store{p.main, p.perSecond}, func(h *limiter.Hit) int {
		if p.of(h) == p.perSecond {
			return 1
		}
		return 0
	})
}

// of is the one that has the counter of a hit.
func (p redisPair) of(h *limiter.Hit) *redisstore.Store {
	if p.perSecond != nil && h.Limit.Period < time.Minute {
		return p.perSecond
	}
	return p.main
}

// locate is for rls.Options.
func (p redisPair) locate(h *limiter.Hit) (place, key string) {
	redis := p.of(h)
	place, key = redis.Locate(h)
	if redis == p.perSecond {
		place = "per second " + place
	}
	return place, key
}

// close closes both.
func (p redisPair) close() {
	for _, redis := range []*redisstore.Store{p.main, p.perSecond} {
		if redis != nil {
			_ = redis.Close() // the process ends
		}
	}
}
