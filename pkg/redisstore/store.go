// Package redisstore is a limiter.Store in Redis, shared by all processes that use the same Redis and prefix.
// Every batch is decided by one run of a script, atomically, by the server's clock; batches that arrive while
// one runs share the next. In a cluster, counters are spread over lanes, each of which is so.
package redisstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/envoy-rls/envoy-rls/lua"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
	"github.com/envoy-rls/envoy-rls/pkg/parts"
)

// Store is a limiter.Store. Any number of goroutines may use it. Close it when it is no longer needed.
type Store struct {
	*server
	target *target
	lanes  []*lane
	parts  *parts.Store // over the lanes, if there are several

	marked atomic.Bool // a Check has left its mark
	lost   atomic.Bool // a later one has found it gone, which Mark tells of
}

// server is what lanes have in common.
type server struct {
	client   redis.UniversalClient
	nodes    *nodes   // nil unless it is a cluster
	hash     string   // of the script
	text     string   // of the script
	untagged string   // what keys without a tag begin with
	prefixes []string // by tag
	tagsKey  string   // where the number of tags is noted
	timeout  time.Duration
	now      func() int64 // µs, or 0 for the server's clock
	jitter   func() int64 // of expiries, in millionths
	called   func(requests int, waited, took time.Duration)
	trace    func(ctx context.Context, lane string) func(requests int, err error)
	inFlight int // calls at once, or 0 for what the round trip asks for
}

// Open returns a Store without asking the server for anything; Check does. The error says what is wrong with
// o and holds no secret.
func Open(o Options) (*Store, error) {
	t, err := o.target()
	if err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	script, err := lua.Engine()
	if err != nil {
		return nil, fmt.Errorf("redis: reading the script: %w", err)
	}
	tags := o.HashTags
	if tags == 0 && t.kind == Cluster {
		tags = clusterTags
	}
	s := &Store{target: t, server: &server{
		hash:     redis.NewScript(script).Hash(),
		text:     script,
		untagged: o.Prefix,
		prefixes: prefixes(o.Prefix, tags),
		tagsKey:  o.Prefix + keyVersion + ":tags",
		timeout:  o.Timeout,
		inFlight: o.InFlight,
		called:   o.Called,
		trace:    o.Trace,
		now:      func() int64 { return 0 },
		jitter:   func() int64 { return rand.Int64N(1e6) },
	}}
	s.client, s.nodes = t.open()
	s.openLanes(o.BreakerChanged)
	return s, nil
}

// openLanes makes one lane, or in a cluster one for each tag: what has a tag is on one node.
func (s *Store) openLanes(changed func(lane string, state BreakerState, cause error)) {
	if s.target.kind != Cluster {
		s.lanes = []*lane{newLane(s.server, allTags, changed)}
		return
	}
	var stores []limiter.Store
	for tag := range s.prefixes {
		l := newLane(s.server, tag, changed)
		s.lanes, stores = append(s.lanes, l), append(stores, l)
	}
	if len(stores) > 1 {
		s.parts = parts.New(stores, s.tagOf)
	}
}

// Close closes the connections. Calls under way fail.
func (s *Store) Close() error {
	for _, l := range s.lanes {
		l.breaker.close()
		l.combiner.close()
	}
	return errors.Join(s.nodes.close(), s.client.Close())
}

// Lanes calls yield with the name of each lane, and with what tells the state of its breaker at any time.
func (s *Store) Lanes(yield func(name string, state func() BreakerState) bool) {
	for _, l := range s.lanes {
		if !yield(l.name, l.breaker.current) {
			return
		}
	}
}

// Up tells whether the Store asks its server: whether no lane's breaker is open.
func (s *Store) Up() bool {
	for _, l := range s.lanes {
		if l.breaker.current() != BreakerClosed {
			return false
		}
	}
	return true
}

// Queued is how many requests wait to be sent, by flow.
func (s *Store) Queued() map[string]int {
	queued := map[string]int{}
	for _, l := range s.lanes {
		l.combiner.addQueued(queued)
	}
	return queued
}

// Connections is how many connections there are, and how many of them are not in use.
func (s *Store) Connections() (all, idle int) {
	stats := s.client.PoolStats()
	return int(stats.TotalConns), int(stats.IdleConns)
}

// Decide implements limiter.Store. It returns within the Store's timeout and ctx's deadline, to a millisecond, and at once
// while the breaker is open. What ctx cancels before it is sent isn't counted. The error is a *Failure, or several that are
// joined. After one it is not known whether the batch was counted, unless it is of the kind that proves that nothing ran,
// such as limiter.ErrNotAsked.
func (s *Store) Decide(ctx context.Context, b *limiter.Batch) error {
	if s.parts != nil {
		return s.parts.Decide(ctx, b)
	}
	return s.lanes[0].Decide(ctx, b)
}

// Address is where the server is, without secrets.
func (s *Store) Address() string { return s.target.String() }
