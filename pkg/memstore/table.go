package memstore

import (
	"math"
	"strings"

	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// counter is a counter that is kept, in as few bytes as can be: a store may hold millions.
type counter struct {
	key     string
	a, b, c int64          // limiter.Row's
	limit   *limiter.Limit // that it was last charged under
	expires uint32         // in seconds, rounded up; from then on the counter is as good as new
	log     uint32         // where its log is in table.logs, or 0
}

// table is a set of counters by name. Its zero value is empty.
//
// The counters lie side by side, in chunks, so that one of them can be picked by its number; what goes leaves its
// place to the last. The slots, which are probed one after the other from where the hash points to, say where
// they are.
type table struct {
	slots  []slot
	chunks []*[chunkSize]counter
	count  int
	logs   [][]int64 // from 1 on
	spare  []uint32  // of them, those that are not in use
}

// slot is the place of a counter whose name has a hash; at is its number and 1, or 0 if there is none.
type slot struct{ hash, at uint32 }

const (
	// chunkSize counters fill 8 KiB, which is a size that Go's allocator has.
	chunkSize = 146
	firstSize = 16
)

func (t *table) at(i int) *counter { return &t.chunks[i/chunkSize][i%chunkSize] }

// home is the slot from which on a hash is looked for.
func (t *table) home(hash uint32) int { return int(uint64(hash) * uint64(len(t.slots)) >> 32) }

func (t *table) after(slot int) int {
	if slot++; slot < len(t.slots) {
		return slot
	}
	return 0
}

// find returns the number of the counter of a name, or -1.
func (t *table) find(hash uint32, key string) int {
	if len(t.slots) == 0 {
		return -1
	}
	for i := t.home(hash); t.slots[i].at != 0; i = t.after(i) {
		if s := t.slots[i]; s.hash == hash && t.at(int(s.at-1)).key == key {
			return int(s.at - 1)
		}
	}
	return -1
}

// add adds a counter that is not there. It clones the name.
func (t *table) add(hash uint32, key string) *counter {
	if t.count >= len(t.slots)/5*4 {
		t.grow()
	}
	if t.count == len(t.chunks)*chunkSize {
		t.chunks = append(t.chunks, new([chunkSize]counter))
	}
	t.count++
	t.place(slot{hash, uint32(t.count)})
	c := t.at(t.count - 1)
	c.key = strings.Clone(key)
	return c
}

func (t *table) place(s slot) {
	i := t.home(s.hash)
	for t.slots[i].at != 0 {
		i = t.after(i)
	}
	t.slots[i] = s
}

func (t *table) grow() {
	old := t.slots
	t.slots = make([]slot, max(firstSize, len(old)/4*5))
	for _, s := range old {
		if s.at != 0 {
			t.place(s)
		}
	}
}

// remove removes counter i, whose name's hash is given, and puts the last in its place; hashOf finds that one's
// hash.
func (t *table) remove(i int, hashOf func(key string) uint32) {
	gone := t.at(i)
	t.setLog(gone, nil)
	t.empty(t.slotOf(hashOf(gone.key), i))
	if last := t.count - 1; last != i {
		moved := t.at(last)
		t.slots[t.slotOf(hashOf(moved.key), last)].at = uint32(i + 1)
		*gone = *moved
		gone = moved
	}
	*gone = counter{}
	t.count--
	if len(t.chunks)-t.count/chunkSize > 2 { // one to spare, so that nothing goes to and fro
		t.chunks[len(t.chunks)-1] = nil
		t.chunks = t.chunks[:len(t.chunks)-1]
	}
}

// slotOf finds the slot of counter i.
func (t *table) slotOf(hash uint32, i int) int {
	s := t.home(hash)
	for t.slots[s].at != uint32(i+1) {
		s = t.after(s)
	}
	return s
}

// empty empties a slot, and moves back those behind it which would no longer be found.
func (t *table) empty(hole int) {
	for i := t.after(hole); t.slots[i].at != 0; i = t.after(i) {
		if t.distance(t.home(t.slots[i].hash), i) >= t.distance(hole, i) {
			t.slots[hole] = t.slots[i]
			hole = i
		}
	}
	t.slots[hole] = slot{}
}

// distance is how many steps lead from one slot to another.
func (t *table) distance(from, to int) int {
	if to >= from {
		return to - from
	}
	return to - from + len(t.slots)
}

func (t *table) row(c *counter) limiter.Row {
	r := limiter.Row{A: c.a, B: c.b, C: c.c}
	if c.log != 0 {
		r.Log = t.logs[c.log]
	}
	return r
}

// set makes r the counter's row, under a limit, until it expires, which is in µs.
func (t *table) set(c *counter, r *limiter.Row, l *limiter.Limit, expires int64) {
	c.a, c.b, c.c, c.limit = r.A, r.B, r.C, l
	c.expires = uint32(min(max(expires+micro-1, 0)/micro, math.MaxUint32))
	if r.Log != nil || c.log != 0 {
		t.setLog(c, r.Log)
	}
}

func (t *table) setLog(c *counter, log []int64) {
	switch {
	case c.log == 0 && len(log) == 0:
		return
	case len(log) == 0:
		t.logs[c.log] = nil
		t.spare = append(t.spare, c.log)
		c.log = 0
		return
	case c.log == 0 && len(t.spare) > 0:
		c.log = t.spare[len(t.spare)-1]
		t.spare = t.spare[:len(t.spare)-1]
	case c.log == 0:
		if len(t.logs) == 0 {
			t.logs = append(t.logs, nil) // 0 stands for none
		}
		c.log = uint32(len(t.logs))
		t.logs = append(t.logs, nil)
	}
	t.logs[c.log] = log
}
