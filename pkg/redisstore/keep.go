package redisstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// Keep keeps something beside the counters, for all processes that use the same Redis and prefix, in the place of what
// was kept under its name. A name begins with a letter, as no counter's does.
func (s *Store) Keep(ctx context.Context, name string, data []byte) error {
	if err := s.client.Set(ctx, s.prefixes[0]+name, data, 0).Err(); err != nil {
		return fmt.Errorf("redis: keeping %s: %w", name, err)
	}
	return nil
}

// Kept returns what was kept under a name, or nil.
func (s *Store) Kept(ctx context.Context, name string) ([]byte, error) {
	data, err := s.client.Get(ctx, s.prefixes[0]+name).Bytes()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("redis: reading what was kept of %s: %w", name, err)
	}
	return data, nil
}
