package main

import (
	"context"
	"crypto/rand"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/redisstore"
)

const (
	censusInterval = 5 * time.Second
	// heartbeatLifetime is how long a replica counts that is not heard of.
	heartbeatLifetime = 15 * time.Second
)

// census knows how many replicas there are, and which of them run other rules than this one. Where that can't be found
// out, what was last known stays; at a cold start there is 1.
type census struct {
	known atomic.Int64
	names atomic.Pointer[[]string]               // of those that beat last
	ask   func(ctx context.Context) (int, error) // nil: goes by heartbeats

	self  redisstore.Replica
	redis *redisstore.Store // nil: nobody beats
	rules func() string     // names those in force
	drift drift
	now   func() time.Time
}

// newCensus goes by the settings: a number, the addresses of a DNS name, or heartbeats in Redis.
func newCensus(s *settings, redis *redisstore.Store, rules func() string) *census {
	c := &census{self: redisstore.Replica{Name: rand.Text()}, redis: redis, rules: rules, now: time.Now}
	c.known.Store(max(int64(s.Replicas), 1))
	switch {
	case s.Replicas > 0:
		c.ask = func(context.Context) (int, error) { return int(s.Replicas), nil }
	case s.Peers != "":
		c.ask = func(ctx context.Context) (int, error) {
			addresses, err := replicasAt(ctx, s.Peers)
			return len(addresses), err
		}
	}
	return c
}

// replicasAt is the address of each replica that a name stands for, as a headless Service's does.
func replicasAt(ctx context.Context, name string) ([]netip.Addr, error) {
	all, err := net.DefaultResolver.LookupNetIP(ctx, "ip", name)
	return ofOneVersion(all), err
}

// ofOneVersion leaves out the addresses of the IP version that has fewer, or as many in IPv6: where there are both, replicas
// have one of each, and would be met twice.
func ofOneVersion(all []netip.Addr) []netip.Addr {
	var four, six []netip.Addr
	for _, a := range all {
		if a = a.Unmap(); a.Is4() {
			four = append(four, a)
		} else {
			six = append(six, a)
		}
	}
	if len(six) > len(four) {
		return six
	}
	return four
}

// count is how many replicas there are, as far as is known: at least 1.
func (c *census) count() int { return int(c.known.Load()) }

// sharing are the names of the replicas that were heard of last, this one among them; none before the first heartbeat.
func (c *census) sharing() []string {
	if names := c.names.Load(); names != nil {
		return *names
	}
	return nil
}

// run keeps what is known up to date until ctx ends.
func (c *census) run(ctx context.Context) {
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
	beating := c.beat(ctx)
	if c.ask != nil {
		n, err := c.ask(ctx)
		if err != nil {
			return
		}
		beating = n
	}
	if beating > 0 {
		c.known.Store(int64(beating))
	}
}

// beat tells the others of this replica and its rules, and returns how many there are, or 0 where that can't be found
// out.
func (c *census) beat(ctx context.Context) int {
	if c.redis == nil {
		return 0
	}
	c.self.Rules = c.rules()
	all, err := c.redis.Heartbeat(ctx, c.self, heartbeatLifetime)
	if err != nil {
		return 0
	}
	c.drift.note(c.now(), c.self, all)
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].Name
	}
	c.names.Store(&names)
	return len(all)
}
