package fallback

import (
	"hash/maphash"
	"strings"
	"sync"

	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

const (
	memoryShards = 64
	// maxSeen is how many counters a memory holds, at some 200 bytes each.
	maxSeen = 1 << 18
)

// memory holds what was last heard of counters, and what is owed for them. It is bounded: of what is forgotten,
// the whole share is granted in an outage, and what was owed is not given back.
type memory struct {
	seed   maphash.Seed
	shards [memoryShards]memoryShard
}

type memoryShard struct {
	mu       sync.Mutex
	counters map[string]*counter
}

// counter is a counter of the store, as far as this process knows it.
type counter struct {
	limit     limiter.Limit
	partition string
	// room is what the store last told, at an instant in µs of its clock; 0: it never did.
	room, at int64
	// outage is the last outage in which the counter was decided locally.
	outage uint64
	// owed is what was charged locally since then and not to the store, the last of it at owedAt.
	owed, owedAt int64
}

func newMemory() *memory {
	m := &memory{seed: maphash.MakeSeed()}
	for i := range m.shards {
		m.shards[i].counters = map[string]*counter{}
	}
	return m
}

func (m *memory) shard(key string) *memoryShard {
	return &m.shards[maphash.String(m.seed, key)%memoryShards]
}

// with calls do with the counter of a hit, which is made if it is not there. do must not keep it.
func (m *memory) with(h *limiter.Hit, do func(c *counter)) {
	sh := m.shard(h.Key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	do(sh.of(h))
}

// heard notes what the store told of a hit.
func (m *memory) heard(h *limiter.Hit, d *limiter.Decision) {
	sh := m.shard(h.Key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	c := sh.of(h)
	c.room, c.at = d.Room, d.At
}

func (sh *memoryShard) of(h *limiter.Hit) *counter {
	c := sh.counters[h.Key]
	if c == nil {
		if len(sh.counters) >= maxSeen/memoryShards {
			sh.forgetOne()
		}
		c = &counter{partition: strings.Clone(h.Partition)}
		sh.counters[strings.Clone(h.Key)] = c
	}
	c.limit = *h.Limit
	return c
}

// forgetOne forgets one for which nothing is owed, if it finds one soon.
func (sh *memoryShard) forgetOne() {
	looked := 0
	for key, c := range sh.counters {
		if looked++; c.owed == 0 || looked == 8 {
			delete(sh.counters, key)
			return
		}
	}
}

// debt is what is owed to the store for one counter.
type debt struct {
	key string
	counter
}

// settle returns all that is owed, which is not owed any more.
func (m *memory) settle() []debt {
	var list []debt
	for i := range m.shards {
		sh := &m.shards[i]
		sh.mu.Lock()
		for key, c := range sh.counters {
			if c.owed != 0 {
				list = append(list, debt{key, *c})
				c.owed = 0
			}
		}
		sh.mu.Unlock()
	}
	return list
}
