package redisstore

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/envoy-rls/envoy-rls/lua"
)

// Heartbeat tells the server that the replica of a name is alive, and returns how many replicas told so within the
// last lifetime, by the server's clock. Two replicas must not have one name.
func (s *Store) Heartbeat(ctx context.Context, name string, lifetime time.Duration) (int, error) {
	key := s.prefixes[0] + "replicas" // no counter's name begins with a letter
	return redis.NewScript(lua.Replicas).Run(ctx, s.client, []string{key}, name, lifetime.Milliseconds()).Int()
}
