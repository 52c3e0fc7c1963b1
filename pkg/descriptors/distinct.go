package descriptors

import (
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// DefaultMaxValues is how many distinct values of a rule have counters of their own in a period, unless the
// rule says otherwise.
const DefaultMaxValues = 1_000_000

// distinct remembers which values of a rule were seen in the present period, up to a most: a client that makes
// up values must not fill the store. It is a chain of Bloom filters, each four times as large as the one before,
// so that it is as small as what it has seen. Of 10,000 values one or two are taken for ones that were seen, and get a counter
// although the most is reached: of 50,000 a second, some. Any number of goroutines may use it.
type distinct struct {
	most   int64
	period time.Duration
	seed   maphash.Seed

	window atomic.Int64 // index of the present period
	layers atomic.Pointer[[]*layer]

	grow sync.Mutex
}

// layer is a Bloom filter.
type layer struct {
	bits  []atomic.Uint64
	holds int64 // how many it is for
	count atomic.Int64
}

const (
	firstLayer   = 1 << 10
	bitsForValue = 24
	probes       = 12
)

func newDistinct(most int64, period time.Duration) *distinct {
	d := &distinct{most: most, period: period, seed: maphash.MakeSeed()}
	d.layers.Store(&[]*layer{})
	return d
}

func newLayer(holds int64) *layer {
	return &layer{bits: make([]atomic.Uint64, holds*bitsForValue/64+1), holds: holds}
}

// admit tells whether a value has, or gets, a counter of its own.
func (d *distinct) admit(value []byte, now time.Time) bool {
	if w := now.UnixNano() / int64(d.period); d.window.Load() != w {
		d.begin(w)
	}
	h := maphash.Bytes(d.seed, value)
	layers := *d.layers.Load()
	switch known, has := count(layers, h); {
	case has:
		return true
	case known >= d.most:
		return false
	}
	if n := len(layers); n == 0 || layers[n-1].count.Load() >= layers[n-1].holds {
		layers = d.longer(n)
	}
	layers[len(layers)-1].add(h)
	return true
}

// Look tells what Rule.Overflows would of values one after the other, as they come in a request, and changes nothing. The
// zero value has seen none. It is for one goroutine.
type Look struct{ admitted map[*distinct][]string }

// Overflows is Rule.Overflows but for that.
func (l *Look) Overflows(r *Rule, values []byte, now time.Time) bool {
	d := r.distinct
	if d == nil {
		return false
	}
	known, has := int64(0), false
	if d.window.Load() == now.UnixNano()/int64(d.period) {
		known, has = count(*d.layers.Load(), maphash.Bytes(d.seed, values))
	}
	earlier := l.admitted[d]
	if has || slices.Contains(earlier, string(values)) {
		return false
	}
	if known+int64(len(earlier)) >= d.most {
		return true
	}
	if l.admitted == nil {
		l.admitted = map[*distinct][]string{}
	}
	l.admitted[d] = append(earlier, string(values))
	return false
}

// count is how many values are in layers, and whether one with the hash h is, in which case it may stop counting.
func count(layers []*layer, h uint64) (known int64, has bool) {
	for _, l := range layers {
		if l.has(h) {
			return known, true
		}
		known += l.count.Load()
	}
	return known, false
}

// seen is how many distinct values there were in the present period, about.
func (d *distinct) seen() int64 {
	n := int64(0)
	for _, l := range *d.layers.Load() {
		n += l.count.Load()
	}
	return n
}

func (d *distinct) begin(window int64) {
	d.grow.Lock()
	defer d.grow.Unlock()
	if d.window.Load() != window {
		d.layers.Store(&[]*layer{})
		d.window.Store(window)
	}
}

// longer adds a layer, unless somebody else has meanwhile.
func (d *distinct) longer(n int) []*layer {
	d.grow.Lock()
	defer d.grow.Unlock()
	layers := *d.layers.Load()
	if len(layers) > n {
		return layers
	}
	holds := int64(firstLayer)
	if len(layers) > 0 {
		holds = 4 * layers[len(layers)-1].holds
	}
	layers = append(layers[:len(layers):len(layers)], newLayer(min(holds, max(d.most, firstLayer))))
	d.layers.Store(&layers)
	return layers
}

// probe is the place of the i-th bit of a hash, by double hashing.
func (l *layer) probe(h uint64, i uint64) (word *atomic.Uint64, bit uint64) {
	place := (h + i*(h>>32|1)) % uint64(len(l.bits)*64)
	return &l.bits[place/64], 1 << (place % 64)
}

func (l *layer) has(h uint64) bool {
	for i := range uint64(probes) {
		if word, bit := l.probe(h, i); word.Load()&bit == 0 {
			return false
		}
	}
	return true
}

func (l *layer) add(h uint64) {
	isNew := false
	for i := range uint64(probes) {
		word, bit := l.probe(h, i)
		isNew = word.Or(bit)&bit == 0 || isNew
	}
	if isNew {
		l.count.Add(1)
	}
}
