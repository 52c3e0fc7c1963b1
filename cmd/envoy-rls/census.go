package main

import (
	"context"
	"crypto/rand"
	"net"
	"sync/atomic"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/redisstore"
)

const (
	censusInterval = 5 * time.Second
	// heartbeatLifetime is how long a replica counts that is not heard of.
	heartbeatLifetime = 15 * time.Second
)

// census knows how many replicas there are. Where that can't be found out, the last known number stays; at a cold
// start it is 1.
type census struct {
	known atomic.Int64
	ask   func(ctx context.Context) (int, error) // nil: the number is given
}

// newCensus goes by the settings: a number, the addresses of a DNS name, or heartbeats in Redis.
func newCensus(s *settings, redis *redisstore.Store) *census {
	c := &census{}
	c.known.Store(max(int64(s.Replicas), 1))
	name := rand.Text()
	switch {
	case s.Replicas > 0:
	case s.Peers != "":
		c.ask = func(ctx context.Context) (int, error) {
			addresses, err := net.DefaultResolver.LookupHost(ctx, s.Peers)
			return len(addresses), err
		}
	case redis != nil:
		c.ask = func(ctx context.Context) (int, error) {
			all, err := redis.Heartbeat(ctx, redisstore.Replica{Name: name}, heartbeatLifetime)
			return len(all), err
		}
	}
	return c
}

// count is how many replicas there are, as far as is known: at least 1.
func (c *census) count() int { return int(c.known.Load()) }

// run keeps the number up to date until ctx ends.
func (c *census) run(ctx context.Context) {
	if c.ask == nil {
		return
	}
	for {
		c.update(ctx)
		select {
		case <-time.After(censusInterval):
		case <-ctx.Done():
			return
		}
	}
}

func (c *census) update(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, censusInterval/2)
	defer cancel()
	if n, err := c.ask(ctx); err == nil && n > 0 {
		c.known.Store(int64(n))
	}
}
