// Package unmatched remembers which shapes of descriptors no rule matches: a domain and keys, with the nearest rule
// and without values. It is bounded whatever clients send.
package unmatched

import (
	"cmp"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
)

// DefaultSize is how many shapes a Table holds unless New is told otherwise.
const DefaultSize = 1000

// What is kept of a shape: so many keys, and so many bytes of each text.
const (
	maxKeys   = 16
	maxDomain = 1024
	maxKey    = 64
	maxValue  = 256
)

const (
	// replaceInterval is the shortest time between two shapes that each take the place of another: making one costs
	// more than counting.
	replaceInterval = 10 * time.Millisecond
	// tellInterval is the shortest time between two times that Due returns a shape, and maxTold how many it returns in
	// such a time.
	tellInterval = time.Minute
	maxTold      = 20
)

// Table counts unmatched descriptors by shape. Of more shapes than it holds, those seen least recently are forgotten.
// Any number of goroutines may use it. Noting a shape that is in the table takes no lock and allocates nothing.
type Table struct {
	size   int
	seed   maphash.Seed
	shapes atomic.Pointer[map[uint64]*entry] // never changed in place
	busy   atomic.Int64                      // no shape takes another's place before; ns since the Unix epoch

	forgotten, uncounted atomic.Int64

	mu      sync.Mutex // of those who change shapes, or tell of them
	telling time.Time  // since when told counts
	told    int
}

// entry is a shape in the table.
type entry struct {
	domain string
	sample []descriptors.Entry // of the first descriptor; its values are for hints, and never shown
	more   int                 // keys beyond maxKeys
	first  time.Time
	count  atomic.Int64
	last   atomic.Int64 // ms since the Unix epoch, up to a second late

	toldAt    time.Time
	toldCount int64
}

// Shape is what is known of descriptors with one domain and one list of keys.
type Shape struct {
	// Domain and Keys are as the request has them, cut where they are long: clients may choose them. MoreKeys is how
	// many keys there are beyond those.
	Domain   string
	Keys     []string
	MoreKeys int
	Count    int64
	// First and Last are when it was seen; Last may be a second late.
	First, Last time.Time

	sample []descriptors.Entry
}

// New returns an empty Table for so many shapes; 0 is DefaultSize.
func New(size int) *Table {
	t := &Table{size: cmp.Or(size, DefaultSize), seed: maphash.MakeSeed()}
	t.shapes.Store(&map[uint64]*entry{})
	return t
}

// Note counts a descriptor of a domain, which need not be known. It keeps neither domain nor list.
func (t *Table) Note(domain string, list []descriptors.Entry, now time.Time) {
	h := t.hash(domain, list)
	e := (*t.shapes.Load())[h]
	if e == nil {
		if e = t.add(h, domain, list, now); e == nil {
			t.uncounted.Add(1)
			return
		}
	}
	e.count.Add(1)
	if at := now.UnixMilli(); at-e.last.Load() >= 1000 { // not at each: others would wait for the memory
		e.last.Store(at)
	}
}

// hash stands for a shape. That two have one hash is as good as impossible, and would mix up two rows.
func (t *Table) hash(domain string, list []descriptors.Entry) uint64 {
	var h maphash.Hash
	h.SetSeed(t.seed)
	_, _ = h.WriteString(domain) // a hash takes everything
	for i := range list {
		_ = h.WriteByte(0)
		_, _ = h.WriteString(list[i].Key)
	}
	return h.Sum64()
}

// add makes the entry of a shape, or returns nil if it is too soon for one to take another's place.
func (t *Table) add(h uint64, domain string, list []descriptors.Entry, now time.Time) *entry {
	if now.UnixNano() < t.busy.Load() {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	old := *t.shapes.Load()
	switch {
	case old[h] != nil:
		return old[h]
	case len(old) >= t.size && now.UnixNano() < t.busy.Load():
		return nil
	}
	shapes := maps.Clone(old)
	if len(old) >= t.size {
		delete(shapes, leastRecent(old))
		t.forgotten.Add(1)
		t.busy.Store(now.Add(replaceInterval).UnixNano())
	}
	e := newEntry(domain, list, now)
	shapes[h] = e
	t.shapes.Store(&shapes)
	return e
}

// leastRecent is the shape that was seen least recently, and least often among those of one second.
func leastRecent(shapes map[uint64]*entry) (least uint64) {
	var found *entry
	for h, e := range shapes {
		if found == nil || cmp.Or(cmp.Compare(e.last.Load(), found.last.Load()), cmp.Compare(e.count.Load(), found.count.Load())) < 0 {
			least, found = h, e
		}
	}
	return least
}

func newEntry(domain string, list []descriptors.Entry, now time.Time) *entry {
	e := &entry{domain: cut(domain, maxDomain), first: now}
	e.last.Store(now.UnixMilli())
	for i := range list[:min(len(list), maxKeys)] {
		e.sample = append(e.sample, descriptors.Entry{Key: cut(list[i].Key, maxKey), Value: cut(list[i].Value, maxValue)})
	}
	e.more = len(list) - len(e.sample)
	return e
}

// cut is a copy of the beginning of a text.
func cut(text string, most int) string {
	if len(text) <= most {
		return strings.Clone(text)
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// Shapes returns what the table holds, the most frequent first.
func (t *Table) Shapes() []Shape {
	var list []Shape
	for _, e := range *t.shapes.Load() {
		list = append(list, e.shape())
	}
	slices.SortFunc(list, func(a, b Shape) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Domain, b.Domain), slices.Compare(a.Keys, b.Keys))
	})
	return list
}

func (e *entry) shape() Shape {
	s := Shape{
		Domain: e.domain, MoreKeys: e.more, Count: e.count.Load(), First: e.first, Last: time.UnixMilli(e.last.Load()),
		sample: e.sample,
	}
	for i := range e.sample {
		s.Keys = append(s.Keys, e.sample[i].Key)
	}
	return s
}

// Forgotten is how many shapes made room for others, and Uncounted how many descriptors came while it was too soon
// for that.
func (t *Table) Forgotten() int64 { return t.forgotten.Load() }

// Uncounted is what Forgotten says.
func (t *Table) Uncounted() int64 { return t.uncounted.Load() }

// Due returns the shapes that should be told of now: those seen since they last were, each at most once a minute, and
// not more than 20 a minute in all. Their Count is of the time since.
func (t *Table) Due(now time.Time) []Shape {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Sub(t.telling) >= tellInterval {
		t.telling, t.told = now, 0
	}
	var due []Shape
	for _, e := range *t.shapes.Load() {
		if t.told == maxTold {
			break
		}
		count := e.count.Load()
		if count == e.toldCount || !e.toldAt.IsZero() && now.Sub(e.toldAt) < tellInterval {
			continue
		}
		s := e.shape()
		s.Count = count - e.toldCount
		e.toldAt, e.toldCount = now, count
		t.told++
		due = append(due, s)
	}
	return due
}

// Why says in words why rules, which may be others than those that s was seen under, match no descriptor of the shape,
// and what is nearest, by the first that was seen. It holds no value of it.
func (s *Shape) Why(rules *descriptors.Ruleset) string {
	if s.MoreKeys > 0 {
		return "the descriptor is deeper than any rule should be"
	}
	if why := rules.Why(s.Domain, s.sample); why != "" {
		return why
	}
	return "a rule matches it since the rules changed"
}
