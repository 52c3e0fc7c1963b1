package redisstore

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// call is one run of the script for some requests, in the encoding of lua/README.md. It is used again after
// reset, which keeps its buffers.
type call struct {
	groups  []group
	keys    []string // alias the names of waiters
	limits  []limiter.Limit
	encoded struct{ limits, groups []byte }

	likes    map[string]int // by what requests have in common, their group
	keyIndex map[string]uint16
	args     []any
}

// group is like requests, which the script decides as one.
type group struct {
	waiters []*waiter
}

func newCall() *call {
	return &call{likes: map[string]int{}, keyIndex: map[string]uint16{}}
}

func (c *call) reset() {
	for i := range c.groups {
		clear(c.groups[i].waiters)
		c.groups[i].waiters = c.groups[i].waiters[:0]
	}
	clear(c.keys)
	clear(c.args)
	clear(c.likes)
	clear(c.keyIndex)
	c.groups, c.keys, c.limits, c.args = c.groups[:0], c.keys[:0], c.limits[:0], c.args[:0]
	c.encoded.limits, c.encoded.groups = c.encoded.limits[:0], c.encoded.groups[:0]
}

// requests is how many requests share the call.
func (c *call) requests() int {
	n := 0
	for i := range c.groups {
		n += len(c.groups[i].waiters)
	}
	return n
}

// add puts w into the group of its like, or into a new one. w's buffers are used until reset.
func (c *call) add(w *waiter) {
	if w.alone {
		c.newGroup(w)
		return
	}
	if i, ok := c.likes[w.like()]; ok && len(c.groups[i].waiters) < math.MaxUint16 {
		c.groups[i].waiters = append(c.groups[i].waiters, w)
		return
	}
	c.likes[w.like()] = c.newGroup(w)
}

func (c *call) newGroup(w *waiter) int {
	n := len(c.groups)
	if n < cap(c.groups) {
		c.groups = c.groups[:n+1] // with its buffer
	} else {
		c.groups = append(c.groups, group{})
	}
	c.groups[n].waiters = append(c.groups[n].waiters, w)
	return n
}

// encode encodes the groups, once all requests are there.
func (c *call) encode() {
	for _, g := range c.groups {
		hits := g.waiters[0].batch.Hits
		c.encoded.groups = binary.LittleEndian.AppendUint16(c.encoded.groups, uint16(len(g.waiters)))
		c.encoded.groups = binary.LittleEndian.AppendUint16(c.encoded.groups, uint16(len(hits)))
		for i := range hits {
			c.encodeHit(&hits[i])
		}
	}
}

func (c *call) encodeHit(h *limiter.Hit) {
	b := c.encoded.groups
	b = binary.LittleEndian.AppendUint16(b, c.key(h.Key))
	b = binary.LittleEndian.AppendUint16(b, c.limit(h.Limit))
	c.encoded.groups = appendTerms(b, h)
}

// appendTerms appends what a hit is besides its key and limit.
func appendTerms(b []byte, h *limiter.Hit) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(h.Cost))
	b = binary.LittleEndian.AppendUint64(b, uint64(h.At))
	passFull := byte(0)
	if h.PassFull {
		passFull = 1
	}
	return append(b, byte(h.Group), byte(h.Role), byte(h.Charge), passFull)
}

// key returns the number of a counter in KEYS, from 1.
func (c *call) key(name string) uint16 {
	n, ok := c.keyIndex[name]
	if !ok {
		c.keys = append(c.keys, name)
		n = uint16(len(c.keys))
		c.keyIndex[name] = n
	}
	return n
}

// limit returns the number of a limit in ARGV, from 1.
func (c *call) limit(l *limiter.Limit) uint16 {
	if i := slices.Index(c.limits, *l); i >= 0 {
		return uint16(i + 1)
	}
	c.limits = append(c.limits, *l)
	c.encoded.limits = appendLimit(c.encoded.limits, l)
	return uint16(len(c.limits))
}

func appendLimit(b []byte, l *limiter.Limit) []byte {
	b = append(b, byte(l.Algorithm))
	b = binary.LittleEndian.AppendUint32(b, l.Requests)
	b = binary.LittleEndian.AppendUint32(b, l.Burst)
	return binary.LittleEndian.AppendUint64(b, uint64(l.Period/time.Microsecond))
}

// argv are the script's arguments. A now of 0 leaves the clock to the server; jitter is in millionths.
func (c *call) argv(now, jitter int64) []any {
	clock := ""
	if now != 0 {
		clock = strconv.FormatInt(now, 10)
	}
	c.args = append(c.args[:0], clock, jitter, c.encoded.limits, c.encoded.groups)
	return c.args
}

// reply is what a run of the script returned: an instant, and the rows that are not yet read.
type reply struct {
	now  int64
	rows string
}

var (
	errReply = errors.New("the script's reply is not a time and rows")
	errRows  = errors.New("the script's reply has too few rows")
)

func parseReply(v any) (reply, error) {
	list, ok := v.([]any)
	if !ok || len(list) != 2 {
		return reply{}, errReply
	}
	now, isTime := list[0].(int64)
	rows, isText := list[1].(string)
	if !isTime || now <= 0 || !isText {
		return reply{}, errReply
	}
	return reply{now, rows}, nil
}

// Sizes of a row in a reply: its numbers, and what else there is.
const (
	numberSize  = 8
	rowSize     = 3*numberSize + 2
	maxRowTimes = 2 * limiter.MaxLog
)

// next reads a row.
func (r *reply) next() (limiter.Row, error) {
	if len(r.rows) < rowSize {
		return limiter.Row{}, errRows
	}
	row := limiter.Row{A: number(r.rows), B: number(r.rows[8:]), C: number(r.rows[16:])}
	times := int(r.rows[24]) | int(r.rows[25])<<8
	r.rows = r.rows[rowSize:]
	if times == 0 {
		return row, nil
	}
	if times > maxRowTimes || len(r.rows) < times*numberSize {
		return limiter.Row{}, errRows
	}
	row.Log = make([]int64, times)
	for i := range row.Log {
		row.Log[i] = number(r.rows[i*numberSize:])
	}
	r.rows = r.rows[times*numberSize:]
	return row, nil
}

func number(s string) int64 {
	return int64(s[0]) | int64(s[1])<<8 | int64(s[2])<<16 | int64(s[3])<<24 |
		int64(s[4])<<32 | int64(s[5])<<40 | int64(s[6])<<48 | int64(s[7])<<56
}

// decide decides all requests of the call by the rows of a reply. On an error those that it could not reach
// are undecided.
func (c *call) decide(r reply, rows *rowsByHit) error {
	for _, g := range c.groups {
		if err := rows.read(&r, g.waiters[0].batch.Hits); err != nil {
			return err
		}
		for _, w := range g.waiters {
			limiter.Decide(&w.batch, rows.byHit, r.now)
			w.decided = true
		}
	}
	return nil
}

// rowsByHit are the rows of a group. Hits of one counter share one.
type rowsByHit struct {
	own   []limiter.Row
	byHit []*limiter.Row
}

func (w *rowsByHit) read(r *reply, hits []limiter.Hit) error {
	w.own = slices.Grow(w.own[:0], len(hits))[:len(hits)]
	w.byHit = w.byHit[:0]
	for i := range hits {
		row, err := r.next()
		if err != nil {
			return err
		}
		w.own[i] = row
		first := i
		for j := range i {
			if hits[j].Key == hits[i].Key {
				first = j
				break
			}
		}
		w.byHit = append(w.byHit, &w.own[first])
	}
	return nil
}
