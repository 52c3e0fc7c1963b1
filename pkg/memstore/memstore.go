// Package memstore is a limiter.Store in this process's memory. Its counters are gone when the process ends,
// and no other process sees them.
package memstore

import (
	"context"
	"hash/maphash"
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// DefaultMemoryLimit bounds a Store whose Options leave MemoryLimit out.
const DefaultMemoryLimit = 256 << 20

const (
	shardCount = 256
	micro      = 1_000_000 // µs in a second
)

// Options are a Store's settings. The zero value is a good choice.
type Options struct {
	// Now is the store's clock; nil is time.Now. It must be safe for concurrent use.
	Now func() time.Time
	// MemoryLimit is about how many bytes counters may take; 0 is DefaultMemoryLimit. Beyond it a new counter
	// takes the place of one of a few that are looked at: a stale one, else the one with most room left,
	// whose loss lets the fewest hits pass, so that a client in a loop can't make itself forgotten by
	// filling the store with names.
	MemoryLimit int
}

// Evictions are the counters that made room for others, by what they were.
type Evictions struct {
	// Stale had nothing to lose.
	Stale int64
	// WithRoom lost a count, and would have let their next hit pass all the same.
	WithRoom int64
	// Denying would have denied their next hit: all that were looked at would.
	Denying int64
}

// Store is a limiter.Store. Any number of goroutines may use it.
type Store struct {
	now         func() time.Time
	maxPerShard int // bytes
	seed        maphash.Seed
	shards      [shardCount]shard
	stale       atomic.Int64
	withRoom    atomic.Int64
	denying     atomic.Int64
	works       sync.Pool // of *work
}

// New returns an empty Store.
func New(o Options) *Store {
	s := &Store{now: o.Now, maxPerShard: o.MemoryLimit, seed: maphash.MakeSeed()}
	s.works.New = func() any { return new(work) }
	if s.now == nil {
		s.now = time.Now
	}
	if s.maxPerShard <= 0 {
		s.maxPerShard = DefaultMemoryLimit
	}
	s.maxPerShard /= shardCount
	return s
}

// Evictions is what was evicted so far. Stale counters that were swept while there was room don't count.
func (s *Store) Evictions() Evictions {
	return Evictions{s.stale.Load(), s.withRoom.Load(), s.denying.Load()}
}

// Len is the number of counters kept, stale ones among them.
func (s *Store) Len() int {
	n := 0
	for i := range s.shards {
		s.shards[i].mu.Lock()
		n += s.shards[i].count
		s.shards[i].mu.Unlock()
	}
	return n
}

// Decide implements limiter.Store. It never fails, and takes no notice of ctx: it waits for nothing.
func (s *Store) Decide(_ context.Context, b *limiter.Batch) error {
	w, _ := s.works.Get().(*work)
	defer s.works.Put(w)
	w.begin(s, b)
	var held shardSet
	for _, h := range w.hashes {
		held.add(h)
	}
	held.each(func(i int) { s.shards[i].mu.Lock() })
	defer held.each(func(i int) { s.shards[i].mu.Unlock() })
	w.load(s, b)
	now := s.now().UnixMicro()
	limiter.Decide(b, w.rows, now)
	w.save(s, b, now)
	return nil
}

// work is what one call of Decide needs besides its batch; it is pooled.
type work struct {
	hashes []uint64       // by hit
	first  []int          // by hit, the first hit of the same counter
	known  []int          // by hit, at first hits the number of the counter in its shard, or -1
	own    []limiter.Row  // by hit, at first hits a copy of the counter
	rows   []*limiter.Row // by hit, into own
}

func (w *work) begin(s *Store, b *limiter.Batch) {
	n := len(b.Hits)
	if cap(w.rows) < n {
		*w = work{make([]uint64, n), make([]int, n), make([]int, n), make([]limiter.Row, n), make([]*limiter.Row, n)}
	}
	w.hashes, w.first, w.known, w.own, w.rows = w.hashes[:n], w.first[:n], w.known[:n], w.own[:n], w.rows[:n]
	for i := range b.Hits {
		w.hashes[i] = maphash.String(s.seed, b.Hits[i].Key)
		w.first[i] = i
		for j := range i {
			if w.hashes[j] == w.hashes[i] && b.Hits[j].Key == b.Hits[i].Key {
				w.first[i] = j
				break
			}
		}
	}
}

func (w *work) load(s *Store, b *limiter.Batch) {
	for i := range b.Hits {
		f := w.first[i]
		w.rows[i] = &w.own[f]
		if f != i {
			continue
		}
		w.own[i] = limiter.Row{}
		sh := s.shard(w.hashes[i])
		if w.known[i] = sh.find(slotHash(w.hashes[i]), b.Hits[i].Key); w.known[i] >= 0 {
			w.own[i] = sh.row(sh.at(w.known[i]))
		}
	}
}

// save writes the counters that were charged, and only those. A give-back makes no counter. Those that are
// kept already come first, since making room for new ones moves counters and looks at until when they matter.
func (w *work) save(s *Store, b *limiter.Batch, now int64) {
	for i := range b.Hits {
		if n := w.known[w.first[i]]; n >= 0 && b.Decisions[i].Charged {
			sh, l := s.shard(w.hashes[i]), b.Hits[i].Limit
			sh.set(sh.at(n), w.rows[i], l, limiter.Expires(l, w.rows[i], now))
		}
	}
	for i := range b.Hits {
		h, f := &b.Hits[i], w.first[i]
		if w.known[f] >= 0 || h.Cost <= 0 || !b.Decisions[i].Charged {
			continue
		}
		w.known[f] = math.MaxInt // it is there now
		s.add(w.hashes[f], h, &w.own[f], now)
	}
	clear(w.own) // of logs
}

// add adds the counter of h.
func (s *Store) add(hash uint64, h *limiter.Hit, r *limiter.Row, now int64) {
	sh := s.shard(hash)
	s.makeRoom(sh, counterSize+len(h.Key)+8*len(r.Log), now)
	c := sh.table.add(slotHash(hash), h.Key)
	sh.table.set(c, r, h.Limit, limiter.Expires(h.Limit, r, now))
	sh.size += sh.sizeOf(c)
}

// slotHash is the part of a name's hash that its shard goes by.
func slotHash(hash uint64) uint32 { return uint32(hash >> 32) }

func (s *Store) slotHash(key string) uint32 { return slotHash(maphash.String(s.seed, key)) }

func (s *Store) shard(hash uint64) *shard { return &s.shards[hash%shardCount] }

// shardSet is a set of shards, walked in ascending order, so that no two calls wait for each other.
type shardSet [shardCount / 64]uint64

func (s *shardSet) add(hash uint64) {
	i := hash % shardCount
	s[i/64] |= 1 << (i % 64)
}

func (s *shardSet) each(do func(i int)) {
	for w, word := range s {
		for ; word != 0; word &= word - 1 {
			do(w*64 + bits.TrailingZeros64(word))
		}
	}
}
