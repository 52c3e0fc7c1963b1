package memstore

import (
	"math"
	"math/rand/v2"
	"sync"

	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

const (
	// swept is how many counters of a shard are looked at, in search of stale ones, for each new one: more than
	// one, so that they are found faster than others come.
	swept = 4
	// sampled is how many are looked at to find one that can go.
	sampled = 16
	// counterSize is about what a counter takes beside its name and its log: itself, its share of the slots, and
	// what its name's memory is larger than the name.
	counterSize = 80
)

// shard is a part of a store's counters.
type shard struct {
	mu sync.Mutex
	table
	size int // bytes, by sizeOf
	hand int // the counter that is swept next
}

func (sh *shard) sizeOf(c *counter) int {
	size := counterSize + len(c.key)
	if c.log != 0 {
		size += 8 * len(sh.logs[c.log])
	}
	return size
}

// set charges a counter that is kept.
func (sh *shard) set(c *counter, r *limiter.Row, l *limiter.Limit, expires int64) {
	sh.size -= sh.sizeOf(c)
	sh.table.set(c, r, l, expires)
	sh.size += sh.sizeOf(c)
}

// sweep drops the stale ones of a few counters. Each new counter pays for a share of the sweeping, and nothing
// ever scans them all.
func (s *Store) sweep(sh *shard, now int64) {
	for range min(swept, sh.count) {
		if sh.hand >= sh.count {
			sh.hand = 0
		}
		if sh.at(sh.hand).stale(now) {
			s.drop(sh, sh.hand) // another is in its place now
		} else {
			sh.hand++
		}
	}
}

// makeRoom drops stale counters, and of the others those with most room left, until there is space for size bytes.
func (s *Store) makeRoom(sh *shard, size int, now int64) {
	s.sweep(sh, now)
	for sh.size+size > s.maxPerShard && sh.count > 0 {
		victim, room := sh.mostRoom(now)
		s.drop(sh, victim)
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

// mostRoom returns, of a few counters, a stale one, else the one with most room.
func (sh *shard) mostRoom(now int64) (victim int, room int64) {
	room = math.MinInt64
	for range sampled {
		i := rand.IntN(sh.count)
		c := sh.at(i)
		if c.stale(now) {
			return i, math.MaxInt64
		}
		row := sh.row(c)
		if left := limiter.Room(c.limit, &row, now); left > room {
			victim, room = i, left
		}
	}
	return victim, room
}

func (c *counter) stale(now int64) bool { return int64(c.expires)*micro <= now }

func (s *Store) drop(sh *shard, i int) {
	sh.size -= sh.sizeOf(sh.at(i))
	sh.remove(i, s.slotHash)
}
