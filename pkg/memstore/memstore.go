// Package memstore is a limiter.Store in this process's memory. Its counters are gone when the process ends,
// and no other process sees them.
package memstore

import (
	"context"
	"hash/maphash"
	"math/bits"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// DefaultMaxCounters bounds a Store whose Options leave MaxCounters out.
const DefaultMaxCounters = 1 << 20

const (
	shardCount = 256
	// sampled is how many counters of a shard are looked at before a new one is kept.
	sampled = 16
)

// Options are a Store's settings. The zero value is a good choice.
type Options struct {
	// Now is the store's clock; nil is time.Now. It must be safe for concurrent use.
	Now func() time.Time
	// MaxCounters is about how many counters are kept; 0 is DefaultMaxCounters. Beyond it a new counter
	// takes the place of the one, of a few sampled, that resets first.
	MaxCounters int
}

// Store is a limiter.Store. Any number of goroutines may use it.
type Store struct {
	now         func() time.Time
	maxPerShard int
	seed        maphash.Seed
	shards      [shardCount]shard
	evicted     atomic.Int64
	works       sync.Pool // of *work
}

type shard struct {
	mu sync.Mutex
	// counters holds pointers, since assigning to a key that is there would make the map keep the caller's
	// copy of the key.
	counters map[string]*row
}

// row is a counter that is kept.
type row struct {
	limiter.Row
	expires int64 // µs; from then on the counter is as good as new
}

// New returns an empty Store.
func New(o Options) *Store {
	s := &Store{now: o.Now, maxPerShard: o.MaxCounters, seed: maphash.MakeSeed()}
	s.works.New = func() any { return new(work) }
	if s.now == nil {
		s.now = time.Now
	}
	if s.maxPerShard <= 0 {
		s.maxPerShard = DefaultMaxCounters
	}
	s.maxPerShard = max(1, s.maxPerShard/shardCount)
	for i := range s.shards {
		s.shards[i].counters = map[string]*row{}
	}
	return s
}

// Evicted is how many counters lost their count to make room for others.
func (s *Store) Evicted() int64 { return s.evicted.Load() }

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
	w.load(s, b)
	now := s.now().UnixMicro()
	limiter.Decide(b, w.rows, now)
	w.save(s, b, now)
	held.each(func(i int) { s.shards[i].mu.Unlock() })
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
			*r = row{Row: *w.rows[i], expires: limiter.Expires(b.Hits[i].Limit, w.rows[i], now)}
		}
	}
	for i := range b.Hits {
		h, d := &b.Hits[i], &b.Decisions[i]
		f := w.first[i]
		if w.known[f] != nil || h.Cost <= 0 || !d.Charged {
			continue
		}
		sh := s.shard(w.hashes[f])
		s.makeRoom(sh, now)
		w.known[f] = &row{Row: w.own[f], expires: limiter.Expires(h.Limit, &w.own[f], now)}
		sh.counters[strings.Clone(h.Key)] = w.known[f]
	}
	clear(w.known)
}

// makeRoom drops the stale ones of a few counters, and one that is not if the shard is full all the same.
// Since maps are walked from a random place, each new counter pays for a share of the sweeping.
func (s *Store) makeRoom(sh *shard, now int64) {
	seen, victim, earliest := 0, "", int64(0)
	for key, r := range sh.counters {
		if r.expires <= now {
			delete(sh.counters, key)
		} else if victim == "" || r.expires < earliest {
			victim, earliest = key, r.expires
		}
		if seen++; seen == sampled {
			break
		}
	}
	if len(sh.counters) >= s.maxPerShard {
		delete(sh.counters, victim)
		s.evicted.Add(1)
	}
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
