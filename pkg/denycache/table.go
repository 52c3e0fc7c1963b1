package denycache

import (
	"hash/maphash"
	"math/bits"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

const (
	// ways is how many denials a bucket has places for.
	ways = 8
	// bucketSize is what a bucket takes at most, with its denials.
	bucketSize = 2 << 10
	// denialSize is about what a denial takes beside the bytes of its key.
	denialSize = int(unsafe.Sizeof(denial{})) + 16
)

// table keeps denials. A key has its place in one bucket of few, so that nothing ever scans them all. Looking takes
// no lock.
type table struct {
	seed    maphash.Seed
	buckets []bucket
	// latest is when the last denial ends.
	latest atomic.Int64
}

// bucket is changed under its lock.
type bucket struct {
	mu sync.Mutex
	// upset is when something in the bucket was last upset. What was decided by a call that began earlier may be
	// from before that.
	upset int64
	hand  int // the place whose denial was last made to go
	// tags are parts of the denials' hashes, so that a look follows no pointer in vain.
	tags    [ways]atomic.Uint32
	denials [ways]atomic.Pointer[denial]
}

// init makes a table of at most size bytes.
func (t *table) init(size int) {
	t.seed = maphash.MakeSeed()
	t.buckets = make([]bucket, size/bucketSize)
	for i := range t.buckets {
		t.buckets[i].upset = never
	}
	t.latest.Store(never)
}

// holds tells whether any denial may hold at now.
func (t *table) holds(now int64) bool { return now < t.latest.Load() }

// place is the bucket of a key, and its tag there.
func (t *table) place(key string) (*bucket, uint32) {
	hash := maphash.String(t.seed, key)
	i, _ := bits.Mul64(hash, uint64(len(t.buckets)))
	return &t.buckets[i], uint32(hash)
}

// find returns a denial that denies h at now, or nil.
func (t *table) find(h *limiter.Hit, now int64) *denial {
	b, tag := t.place(h.Key)
	for i := range b.tags {
		if b.tags[i].Load() != tag {
			continue
		}
		if e := b.denials[i].Load(); e != nil && e.denies(h, now) {
			return e
		}
	}
	return nil
}

// put keeps e, unless something was upset since the call began that e is from, or there is one that says more.
func (t *table) put(e *denial) {
	b, tag := t.place(e.key)
	if e.size() > bucketSize-int(unsafe.Sizeof(bucket{})) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.upset >= e.began {
		return
	}
	i, known := b.placeOf(e)
	if known != nil && known.until > e.began && known.need <= e.need {
		return
	}
	if known == nil {
		i = b.makeRoom(e)
	}
	b.denials[i].Store(e)
	b.tags[i].Store(tag)
	t.extend(e.until)
}

// extend lets the table hold something until then.
func (t *table) extend(until int64) {
	for {
		latest := t.latest.Load()
		if latest >= until || t.latest.CompareAndSwap(latest, until) {
			return
		}
	}
}

// forget drops the denials of a key, but for those under the spared limit, if there is one, and those that are
// under way.
func (t *table) forget(key string, spared *limiter.Limit, now int64) {
	b, _ := t.place(key)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.upset = max(b.upset, now)
	for i := range b.denials {
		if e := b.denials[i].Load(); e != nil && e.key == key && (spared == nil || e.limit != *spared) {
			b.denials[i].Store(nil)
		}
	}
}

func (t *table) len() int {
	n := 0
	for i := range t.buckets {
		for j := range t.buckets[i].denials {
			if t.buckets[i].denials[j].Load() != nil {
				n++
			}
		}
	}
	return n
}

func (e *denial) size() int { return denialSize + len(e.key) }

// placeOf finds the denial of e's counter under e's limit.
func (b *bucket) placeOf(e *denial) (int, *denial) {
	for i := range b.denials {
		if known := b.denials[i].Load(); known != nil && known.limit == e.limit && known.key == e.key {
			return i, known
		}
	}
	return 0, nil
}

// makeRoom returns a place that is free once others had to go for e.
func (b *bucket) makeRoom(e *denial) int {
	for {
		free, size := -1, int(unsafe.Sizeof(*b))+e.size()
		for i := range b.denials {
			if other := b.denials[i].Load(); other != nil {
				size += other.size()
			} else {
				free = i
			}
		}
		if free >= 0 && size <= bucketSize {
			return free
		}
		b.denials[b.victim(e.began)].Store(nil)
	}
}

// victim is the place of a denial that holds no longer, else of any.
func (b *bucket) victim(now int64) int {
	for i := range b.denials {
		if e := b.denials[i].Load(); e != nil && e.until <= now {
			return i
		}
	}
	for {
		b.hand = (b.hand + 1) % ways
		if b.denials[b.hand].Load() != nil {
			return b.hand
		}
	}
}
