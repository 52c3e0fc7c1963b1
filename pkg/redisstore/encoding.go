package redisstore

import (
	"encoding/binary"
	"slices"
	"strconv"
	"time"
	"unsafe"

	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// encoding is a call as the script takes it, in the form of lua/README.md.
type encoding struct {
	limits, kinds  []byte
	plain, general section
	numbers        map[limiter.Limit]uint16 // of limits, from 1
	keys           []any                    // *string

	args   []any
	count  int // of keys
	jitter int64
	texts  [5]string // now, and what is above, as the arguments point to it
}

// section is some of the groups.
type section struct {
	groups []int32 // in the order in which they are decided
	runs   []byte
}

func (e *encoding) reset() {
	clear(e.keys)
	clear(e.args)
	clear(e.numbers)
	e.limits, e.kinds, e.keys, e.args = e.limits[:0], e.kinds[:0], e.keys[:0], e.args[:0]
	for _, s := range []*section{&e.plain, &e.general} {
		s.groups, s.runs = s.groups[:0], s.runs[:0]
	}
}

// encode encodes the groups, once all requests are there.
func (c *call) encode() {
	for i := range c.kinds {
		c.encodeKind(&c.kinds[i])
	}
	for i := range c.kinds {
		if c.kinds[i].plain {
			c.encodePlain(i)
		}
	}
	for i := range c.kinds {
		c.encodeGeneral(i)
	}
}

func (c *call) encodeKind(k *kind) {
	b := binary.LittleEndian.AppendUint16(c.encoding.kinds, uint16(k.end-k.first))
	for i := k.first; i < k.end; i++ {
		h := &c.hits[i]
		b = binary.LittleEndian.AppendUint16(b, c.encoding.limit(h.Limit))
		b = binary.LittleEndian.AppendUint64(b, uint64(h.Cost))
		b = binary.LittleEndian.AppendUint64(b, uint64(h.At))
		b = binary.LittleEndian.AppendUint16(b, h.Group)
		passFull := byte(0)
		if h.PassFull {
			passFull = 1
		}
		b = append(b, byte(h.Role), byte(h.Charge), passFull)
	}
	c.encoding.kinds = b
}

// limit returns the number of a limit.
func (e *encoding) limit(l *limiter.Limit) uint16 {
	n, ok := e.numbers[*l]
	if ok {
		return n
	}
	e.limits = append(e.limits, byte(l.Algorithm))
	e.limits = binary.LittleEndian.AppendUint32(e.limits, l.Requests)
	e.limits = binary.LittleEndian.AppendUint32(e.limits, l.Burst)
	e.limits = binary.LittleEndian.AppendUint64(e.limits, uint64(l.Period/time.Microsecond))
	n = uint16(len(e.numbers) + 1)
	e.numbers[*l] = n
	return n
}

// encodePlain encodes the groups of a kind that are the only ones of their counters, in runs of equal numbers of
// requests.
func (c *call) encodePlain(kind int) {
	s := &c.encoding.plain
	first := len(s.groups)
	for n := c.kinds[kind].head; n != none; n = c.groups[n].next {
		if c.isPlain(&c.groups[n]) {
			s.groups = append(s.groups, n)
		}
	}
	slices.SortFunc(s.groups[first:], func(a, b int32) int { return c.groups[a].requests - c.groups[b].requests })
	for groups := s.groups[first:]; len(groups) > 0; {
		requests, n := c.groups[groups[0]].requests, 0
		for n < len(groups) && c.groups[groups[n]].requests == requests {
			for _, counter := range c.countersOf(&c.groups[groups[n]]) {
				c.encoding.key(&c.counters[counter])
			}
			n++
		}
		s.runs = binary.LittleEndian.AppendUint16(s.runs, uint16(kind+1))
		s.runs = binary.LittleEndian.AppendUint16(s.runs, uint16(requests))
		s.runs = binary.LittleEndian.AppendUint16(s.runs, uint16(n))
		groups = groups[n:]
	}
}

// isPlain tells whether a group charges fixed windows that no other hit is on.
func (c *call) isPlain(g *group) bool {
	return c.kinds[g.kind].plain &&
		!slices.ContainsFunc(c.countersOf(g), func(n int32) bool { return c.counters[n].hits != 1 })
}

// encodeGeneral encodes the other groups of a kind.
func (c *call) encodeGeneral(kind int) {
	s := &c.encoding.general
	start, before := len(s.runs), len(s.groups)
	s.runs = binary.LittleEndian.AppendUint16(s.runs, uint16(kind+1))
	s.runs = append(s.runs, 0, 0) // for how many there are
	for n := c.kinds[kind].head; n != none; n = c.groups[n].next {
		g := &c.groups[n]
		if c.isPlain(g) {
			continue
		}
		s.groups = append(s.groups, n)
		s.runs = binary.LittleEndian.AppendUint16(s.runs, uint16(g.requests))
		for _, counter := range c.countersOf(g) {
			s.runs = binary.LittleEndian.AppendUint16(s.runs, c.encoding.key(&c.counters[counter]))
		}
	}
	if n := len(s.groups) - before; n > 0 {
		binary.LittleEndian.PutUint16(s.runs[start+2:], uint16(n))
	} else {
		s.runs = s.runs[:start]
	}
}

// key returns a counter's number in KEYS.
func (e *encoding) key(k *counter) uint16 {
	if k.number == 0 {
		e.keys = append(e.keys, &k.name)
		k.number = uint16(len(e.keys))
	}
	return k.number
}

// command returns the arguments of EVALSHA, or EVAL, for the script. A now of 0 leaves the clock to the server;
// jitter is in millionths. They point into c, so that they cost no memory.
func (c *call) command(name string, script *string, now, jitter int64) []any {
	e := &c.encoding
	e.count, e.jitter = len(e.keys), jitter
	e.texts = [5]string{"", view(e.limits), view(e.kinds), view(e.plain.runs), view(e.general.runs)}
	if now != 0 {
		e.texts[0] = strconv.FormatInt(now, 10)
	}
	e.args = append(e.args[:0], name, script, &e.count)
	e.args = append(e.args, e.keys...)
	e.args = append(e.args, &e.texts[0], &e.jitter)
	for i := range e.texts[1:] {
		e.args = append(e.args, &e.texts[1+i])
	}
	return e.args
}

// view is b as a string, for as long as b doesn't change.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
