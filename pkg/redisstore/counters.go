package redisstore

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// scanned is how many keys the server looks at in a step.
const scanned = 1000

// Sweep calls visit with the names of the counters that begin with one of the bytes, in no order and some of them perhaps
// twice, and deletes those for which it returns drop, until it returns more as false. Counters that come or go meanwhile may
// be missed. visit is called by one goroutine at a time.
func (s *Store) Sweep(ctx context.Context, begin string, visit func(name string) (drop, more bool)) error {
	prefix, _, _ := strings.Cut(s.prefixes[0], "{")
	w := &sweep{pattern: escapeGlob(prefix) + "{*}[" + begin + "]*", visit: visit}
	var err error
	switch c := s.client.(type) {
	case *redis.ClusterClient:
		err = c.ForEachMaster(ctx, w.node)
	case *redis.Client:
		err = w.node(ctx, c)
	}
	if err != nil {
		return fmt.Errorf("redis: looking for counters: %w", refusal("SCAN and DEL", err))
	}
	return nil
}

// sweep is one run of Sweep.
type sweep struct {
	pattern string
	mu      sync.Mutex // of what follows
	visit   func(name string) (drop, more bool)
	ended   bool
}

// node sweeps one node.
func (w *sweep) node(ctx context.Context, c *redis.Client) error {
	for cursor := uint64(0); ; {
		keys, next, err := c.Scan(ctx, cursor, w.pattern, scanned).Result()
		if err != nil {
			return err
		}
		drop, more := w.page(keys)
		if err := deleteAll(ctx, c, drop); err != nil {
			return err
		}
		if !more || next == 0 {
			return nil
		}
		cursor = next
	}
}

// page visits some keys, and returns those that are to be deleted.
func (w *sweep) page(keys []string) (drop []string, more bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range keys {
		if w.ended {
			break
		}
		_, tagged, _ := strings.Cut(key, "{")
		_, name, _ := strings.Cut(tagged, "}") // no prefix and no tag has a brace of its own
		dropped, more := w.visit(name)
		if dropped {
			drop = append(drop, key)
		}
		w.ended = !more
	}
	return drop, !w.ended
}

// Delete deletes the counters of hits, of which only Key, Partition and Limit count, and returns how many there were.
func (s *Store) Delete(ctx context.Context, hits []limiter.Hit) (n int, err error) {
	for i := range hits {
		cmd := redis.NewIntCmd(ctx, "DEL", s.prefixOf(&hits[i])+hits[i].Key)
		if err := s.send(ctx, cmd); err != nil {
			return n, fmt.Errorf("redis: deleting a counter: %w", refusal("DEL", err))
		}
		n += int(cmd.Val())
	}
	return n, nil
}

func deleteAll(ctx context.Context, c *redis.Client, keys []string) error {
	if len(keys) == 0 {
		return nil
	}
	pipe := c.Pipeline()
	for _, key := range keys {
		pipe.Del(ctx, key)
	}
	_, err := pipe.Exec(ctx)
	return err
}

// escapeGlob makes a pattern that matches only text.
func escapeGlob(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(text)
}
