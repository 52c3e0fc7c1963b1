package redisstore

import (
	"slices"
	"time"
	"unsafe"

	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// call is one run of the script for some requests. Requests are added, then encoded, then decided by the reply. It
// is used again after reset, which keeps its buffers.
type call struct {
	prefixOf func(*limiter.Hit) string // what a hit's key begins with
	taken    []*waiter                 // what it is for
	ended    []*waiter                 // what it was for, while their callers are told
	came     time.Time                 // when the first of them came

	kinds    []kind
	hits     []limiter.Hit // of the kinds, one kind's after the other's, without their keys
	groups   []group
	counters []counter
	places   []int32 // of the groups, each its kind and then by hit its counter
	names    []byte  // of the counters, which alias it; where it moves as it grows, earlier ones keep the old place

	byName   map[string]int32 // counters
	byPlaces map[string]int32 // groups, by their places

	encoding encoding
	rows     rows
}

// kind is what requests have in common that differ at most in their counters.
type kind struct {
	first, end int   // of its hits
	head, last int32 // of its groups, or none
	alone      bool  // no two of its requests can share a group
	plain      bool  // charges of fixed windows, all or none, and nothing else
}

// group is like requests, which the script decides as one.
type group struct {
	kind     int32
	next     int32 // the next one of its kind, or none
	places   int   // where its own begin
	requests int
	first    *waiter // a list by their like
	last     *waiter
}

// counter is one of the call's keys.
type counter struct {
	name   string
	limit  *limiter.Limit // of its first hit, or nil
	hits   int            // of groups
	group  int32          // one that has no other counter, or none
	mixed  bool           // its one group hits it under limits that differ
	number uint16         // in KEYS, or 0
}

// none is no group.
const none = -1

func newCall(prefixOf func(*limiter.Hit) string) *call {
	return &call{
		prefixOf: prefixOf, byName: map[string]int32{}, byPlaces: map[string]int32{},
		encoding: encoding{numbers: map[limiter.Limit]uint16{}},
	}
}

// fill adds what was taken, but for what has to be put off, and encodes it. It returns false if no caller waits
// any more.
func (c *call) fill() bool {
	for _, w := range c.taken {
		w.addTo(c)
	}
	if len(c.groups) == 0 {
		return false
	}
	c.encode()
	return true
}

// finish appends all requests but those that were put off, which are left for the next call.
func (c *call) finish(to []*waiter) []*waiter {
	putOff := c.taken[:0]
	for _, w := range c.taken {
		if w.putOff {
			w.putOff = false
			putOff = append(putOff, w)
		} else {
			to = append(to, w)
		}
	}
	clear(c.taken[len(putOff):])
	c.taken = putOff
	c.reset()
	return to
}

func (c *call) reset() {
	clear(c.hits)
	clear(c.groups)
	clear(c.counters)
	clear(c.byName)
	clear(c.byPlaces)
	c.kinds, c.hits, c.groups = c.kinds[:0], c.hits[:0], c.groups[:0]
	c.counters, c.places, c.names = c.counters[:0], c.places[:0], c.names[:0]
	c.encoding.reset()
	c.rows.reset()
}

// requests is how many requests share the call.
func (c *call) requests() int {
	n := 0
	for i := range c.groups {
		n += c.groups[i].requests
	}
	return n
}

// countersOf are the numbers of a group's counters, by hit.
func (c *call) countersOf(g *group) []int32 {
	k := &c.kinds[g.kind]
	return c.places[g.places+1:][:k.end-k.first]
}

// add puts a request into the group of its like, or into a new one. It returns false, and no group is changed,
// if the request can't be decided together with what is there.
func (c *call) add(w *waiter, hits []limiter.Hit) bool {
	first := len(c.places)
	k := c.kind(hits)
	c.places = append(c.places, k)
	for i := range hits {
		c.places = append(c.places, c.counter(&hits[i]))
	}
	places := c.places[first:]
	alone, fits := c.fits(hits, places[1:])
	if !fits {
		c.takeBack(first)
		return false
	}
	alone = alone || c.kinds[k].alone
	g := int32(none)
	if !alone {
		g = c.groupOf(places)
	}
	if g != none {
		c.places = c.places[:first]
	} else {
		g = c.newGroup(first, alone)
	}
	c.groups[g].join(w)
	return true
}

func (g *group) join(w *waiter) {
	if g.last == nil {
		g.first = w
	} else {
		g.last.like = w
	}
	g.last = w
	g.requests++
}

// takeBack forgets a request that could not be added, but for the names of its counters.
func (c *call) takeBack(first int) {
	for _, n := range c.places[first+1:] {
		if k := &c.counters[n]; k.hits == 0 {
			k.limit, k.mixed = nil, false
		}
	}
	c.places = c.places[:first]
}

// fits tells whether hits can be decided beside what is there, and whether they hit a counter twice. The script
// reads a counter once, under the limit of its first hit, so no two requests of a call may want it read
// differently.
func (c *call) fits(hits []limiter.Hit, counters []int32) (twice, fits bool) {
	for i, n := range counters {
		k := &c.counters[n]
		same := readAlike(k.limit, hits[i].Limit)
		if k.hits > 0 && (k.mixed || !same) {
			return false, false
		}
		k.mixed = k.mixed || !same
		twice = twice || slices.Contains(counters[:i], n)
	}
	return twice, true
}

// readAlike tells whether a counter reads the same under both limits. Windows and logs don't depend on the
// number of requests.
func readAlike(a, b *limiter.Limit) bool {
	return a == b || a.Algorithm == b.Algorithm && a.Period == b.Period && (!a.Algorithm.HasBurst() || *a == *b)
}

// counter returns the number of a hit's counter, from 0.
func (c *call) counter(h *limiter.Hit) int32 {
	first := len(c.names)
	c.names = append(append(c.names, c.prefixOf(h)...), h.Key...)
	name := unsafe.String(unsafe.SliceData(c.names[first:]), len(c.names)-first)
	if n, ok := c.byName[name]; ok {
		c.names = c.names[:first]
		if k := &c.counters[n]; k.limit == nil {
			k.limit = h.Limit
		}
		return n
	}
	n := int32(len(c.counters))
	c.counters = append(c.counters, counter{name: name, limit: h.Limit, group: none})
	c.byName[name] = n
	return n
}

// kind returns the number of the hits' kind, from 0.
func (c *call) kind(hits []limiter.Hit) int32 {
	for i := range c.kinds {
		if k := &c.kinds[i]; slices.EqualFunc(c.hits[k.first:k.end], hits, sameTerms) {
			return int32(i)
		}
	}
	k := kind{first: len(c.hits), head: none, last: none}
	for _, h := range hits {
		h.Key, h.Partition = "", ""
		c.hits = append(c.hits, h)
		k.alone = k.alone || h.Cost < 0 || h.At != 0
	}
	k.end = len(c.hits)
	k.plain = !k.alone && !slices.ContainsFunc(hits, func(h limiter.Hit) bool { return !isPlain(&h, len(hits) == 1) })
	c.kinds = append(c.kinds, k)
	return int32(len(c.kinds) - 1)
}

// isPlain tells whether a hit charges a fixed window and, unless it is the only one of its request, is charged with all
// others or not at all.
func isPlain(h *limiter.Hit, only bool) bool {
	return h.Limit.Algorithm == limiter.FixedWindow && h.Cost > 0 &&
		(only || h.Role == limiter.Enforced && h.Charge == limiter.Together)
}

// sameTerms tells whether hits differ in nothing but their counter.
func sameTerms(a, b limiter.Hit) bool {
	return (a.Limit == b.Limit || *a.Limit == *b.Limit) &&
		a.Cost == b.Cost && a.At == b.At && a.Group == b.Group &&
		a.Role == b.Role && a.Charge == b.Charge && a.PassFull == b.PassFull
}

// groupOf returns the group that has places, or none. That of a counter which nothing else hits is found without a
// look into a map.
func (c *call) groupOf(places []int32) int32 {
	if len(places) == 2 {
		g := c.counters[places[1]].group
		if g == none || c.groups[g].kind == places[0] {
			return g
		}
	}
	if g, ok := c.byPlaces[text(places)]; ok {
		return g
	}
	return none
}

func (c *call) newGroup(first int, alone bool) int32 {
	places := c.places[first:]
	g := int32(len(c.groups))
	c.groups = append(c.groups, group{kind: places[0], next: none, places: first})
	k := &c.kinds[places[0]]
	if k.last == none {
		k.head = g
	} else {
		c.groups[k.last].next = g
	}
	k.last = g
	for _, n := range places[1:] {
		c.counters[n].hits++
	}
	switch {
	case alone:
	case len(places) == 2 && c.counters[places[1]].group == none:
		c.counters[places[1]].group = g
	default:
		c.byPlaces[text(places)] = g
	}
	return g
}

// text is places as the key of a map.
func text(places []int32) string {
	return unsafe.String((*byte)(unsafe.Pointer(unsafe.SliceData(places))), 4*len(places))
}
