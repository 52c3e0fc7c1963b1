package memstore

import (
	"context"
	"hash/maphash"
	"strings"

	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// Sweep calls visit with the names of the counters that begin with one of the bytes, in no order, and deletes those for
// which it returns drop, until it returns more as false. It holds up decisions for no longer than it takes to copy the names
// of a part of the counters; those that come or go meanwhile may be missed. It fails only with ctx.
func (s *Store) Sweep(ctx context.Context, begin string, visit func(name string) (drop, more bool)) error {
	for i := range s.shards {
		if err := ctx.Err(); err != nil {
			return err
		}
		for _, name := range s.namesIn(&s.shards[i]) {
			if !strings.Contains(begin, name[:1]) {
				continue
			}
			drop, more := visit(name)
			if drop {
				s.forget(name)
			}
			if !more {
				return nil
			}
		}
	}
	return nil
}

// namesIn copies the names of the counters that are not stale.
func (s *Store) namesIn(sh *shard) []string {
	now := s.now().UnixMicro()
	sh.mu.Lock()
	defer sh.mu.Unlock()
	names := make([]string, 0, sh.count)
	for i := range sh.count {
		if c := sh.at(i); !c.stale(now) && c.key != "" {
			names = append(names, c.key)
		}
	}
	return names
}

// Delete deletes the counters of hits, of which only Key counts, and returns how many there were. It never fails.
func (s *Store) Delete(_ context.Context, hits []limiter.Hit) (n int, err error) {
	for i := range hits {
		if s.forget(hits[i].Key) {
			n++
		}
	}
	return n, nil
}

func (s *Store) forget(name string) (was bool) {
	hash := maphash.String(s.seed, name)
	sh := s.shard(hash)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	i := sh.find(slotHash(hash), name)
	if i >= 0 {
		s.drop(sh, i)
	}
	return i >= 0
}
