// Package memstore is a limiter.Store in this process's memory. Its counters are gone when the process ends,
// and no other process sees them.
package memstore

import (
	"context"
	"hash/maphash"
	"math"
	"math/bits"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// DefaultMemoryLimit bounds a Store whose Options leave MemoryLimit out.
const DefaultMemoryLimit = 256 << 20

const (
	shardCount = 256
	// swept is how many counters of a shard are looked at, in search of stale ones, for each new one.
	swept = 4
	// sampled is how many are looked at to find one that can go.
	sampled = 16
	// counterSize is about what a counter takes beside the bytes of its name: its row, the name's header, and
	// its place in a map that is on average three quarters full.
	counterSize = 160
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

type shard struct {
	mu sync.Mutex
	// counters holds pointers, since assigning to a key that is there would make the map keep the caller's
	// copy of the key.
	counters map[string]*row
	size     int // bytes, by sizeOf
}

// row is a counter that is kept.
type row struct {
	limiter.Row
	limit   *limiter.Limit // that it was last charged under
	expires int64          // µs; from then on the counter is as good as new
}

func sizeOf(key string, r *row) int { return counterSize + len(key) + 8*len(r.Log) }

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
	for i := range s.shards {
		s.shards[i].counters = map[string]*row{}
	}
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
		n += len(s.shards[i].counters)
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
	known  []*row         // by hit, at first hits the counter if it is kept
	own    []limiter.Row  // by hit, at first hits a copy of the counter
	rows   []*limiter.Row // by hit, into own
}

func (w *work) begin(s *Store, b *limiter.Batch) {
	n := len(b.Hits)
	if cap(w.rows) < n {
		*w = work{make([]uint64, n), make([]int, n), make([]*row, n), make([]limiter.Row, n), make([]*limiter.Row, n)}
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
		if w.known[i] = s.shard(w.hashes[i]).counters[b.Hits[i].Key]; w.known[i] != nil {
			w.own[i] = w.known[i].Row
		}
	}
}

// save writes the counters that were charged, and only those. A give-back makes no counter. Those that are
// kept already come first, since making room for new ones looks at until when the others matter.
func (w *work) save(s *Store, b *limiter.Batch, now int64) {
	for i := range b.Hits {
		if r := w.known[w.first[i]]; r != nil && b.Decisions[i].Charged {
			sh := s.shard(w.hashes[i])
			sh.size += 8 * (len(w.rows[i].Log) - len(r.Log))
			*r = row{*w.rows[i], b.Hits[i].Limit, limiter.Expires(b.Hits[i].Limit, w.rows[i], now)}
		}
	}
	for i := range b.Hits {
		h, d := &b.Hits[i], &b.Decisions[i]
		f := w.first[i]
		if w.known[f] != nil || h.Cost <= 0 || !d.Charged {
			continue
		}
		sh := s.shard(w.hashes[f])
		r := &row{w.own[f], h.Limit, limiter.Expires(h.Limit, &w.own[f], now)}
		s.makeRoom(sh, sizeOf(h.Key, r), now)
		w.known[f] = r
		sh.counters[strings.Clone(h.Key)] = r
		sh.size += sizeOf(h.Key, r)
	}
	clear(w.known)
}

// makeRoom drops the stale ones of a few counters, and of the others those with most room left until there is
// space for size bytes. Since maps are walked from a random place, each new counter pays for a share of the
// sweeping, and nothing ever scans them all.
func (s *Store) makeRoom(sh *shard, size int, now int64) {
	sh.sweep(now)
	for sh.size+size > s.maxPerShard && len(sh.counters) > 0 {
		victim, room := sh.mostRoom(now)
		sh.drop(victim)
		switch {
		case room == math.MaxInt64:
			s.stale.Add(1)
		case room > 0:
			s.withRoom.Add(1)
		default:
			s.denying.Add(1)
		}
	}
}

// sweep drops the stale ones of a few counters: more than one, so that they are found faster than others come.
func (sh *shard) sweep(now int64) {
	seen := 0
	for key, r := range sh.counters {
		if r.expires <= now {
			sh.drop(key)
		}
		if seen++; seen == swept {
			return
		}
	}
}

// mostRoom returns, of a few counters, a stale one, else the one with most room.
func (sh *shard) mostRoom(now int64) (victim string, room int64) {
	seen := 0
	for key, r := range sh.counters {
		if r.expires <= now {
			return key, math.MaxInt64
		}
		copied := r.Row
		if left := limiter.Room(r.limit, &copied, now); seen == 0 || left > room {
			victim, room = key, left
		}
		if seen++; seen == sampled {
			break
		}
	}
	return victim, room
}

func (sh *shard) drop(key string) {
	sh.size -= sizeOf(key, sh.counters[key])
	delete(sh.counters, key)
}

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
