package redisstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// rowSize is the size of a hit's row in a reply.
const rowSize = 3 * 8

// call is the arguments of one run of the script, in the encoding of lua/README.md. Its zero value is empty;
// reset makes it so again and keeps the buffers.
type call struct {
	keys    []string
	limits  []limiter.Limit
	batches []byte
	limit   []byte // limits, encoded

	keyIndex map[string]uint16
}

func (c *call) reset() {
	c.keys, c.limits, c.batches, c.limit = c.keys[:0], c.limits[:0], c.batches[:0], c.limit[:0]
	clear(c.keyIndex)
}

// add encodes b, whose counters have names behind prefix. Nothing refers to b afterwards.
func (c *call) add(b *limiter.Batch, prefix string) {
	c.batches = binary.LittleEndian.AppendUint16(c.batches, uint16(len(b.Hits)))
	for i := range b.Hits {
		h := &b.Hits[i]
		c.batches = binary.LittleEndian.AppendUint16(c.batches, c.key(prefix, h.Key))
		c.batches = binary.LittleEndian.AppendUint16(c.batches, c.limitNumber(h.Limit))
		c.batches = binary.LittleEndian.AppendUint64(c.batches, uint64(h.Cost))
		c.batches = binary.LittleEndian.AppendUint64(c.batches, uint64(h.At))
		c.batches = append(c.batches, byte(h.Group), byte(h.Role), byte(h.Charge), passFull(h))
	}
}

func passFull(h *limiter.Hit) byte {
	if h.PassFull {
		return 1
	}
	return 0
}

// key returns the number of a counter in KEYS, from 1.
func (c *call) key(prefix, name string) uint16 {
	if n, ok := c.keyIndex[name]; ok {
		return n
	}
	key := prefix + name
	c.keys = append(c.keys, key)
	if c.keyIndex == nil {
		c.keyIndex = map[string]uint16{}
	}
	n := uint16(len(c.keys))
	c.keyIndex[key[len(prefix):]] = n
	return n
}

// limitNumber returns the number of a limit in ARGV, from 1.
func (c *call) limitNumber(l *limiter.Limit) uint16 {
	if i := slices.Index(c.limits, *l); i >= 0 {
		return uint16(i + 1)
	}
	c.limits = append(c.limits, *l)
	c.limit = append(c.limit, byte(l.Algorithm))
	c.limit = binary.LittleEndian.AppendUint32(c.limit, l.Requests)
	c.limit = binary.LittleEndian.AppendUint32(c.limit, l.Burst)
	c.limit = binary.LittleEndian.AppendUint64(c.limit, uint64(l.Period/time.Microsecond))
	return uint16(len(c.limits))
}

// args are ARGV. A now of 0 leaves the clock to the server; jitter is in millionths.
func (c *call) args(now, jitter int64) []any {
	clock := ""
	if now != 0 {
		clock = strconv.FormatInt(now, 10)
	}
	return []any{clock, jitter, c.limit, c.batches}
}

// reply is what a run of the script returned: an instant, and the rows of all hits of all batches in order.
type reply struct {
	now  int64
	rows string
}

// parseReply checks a reply before anything of it is believed.
func parseReply(v any, hits int) (reply, error) {
	list, ok := v.([]any)
	if !ok || len(list) != 2 {
		return reply{}, errors.New("the script's reply is not a list of two")
	}
	now, isTime := list[0].(int64)
	rows, isText := list[1].(string)
	switch {
	case !isTime || now <= 0:
		return reply{}, errors.New("the script's reply has no time")
	case !isText || len(rows) != hits*rowSize:
		return reply{}, fmt.Errorf("the script's reply is not %d rows", hits)
	}
	return reply{now, rows}, nil
}

// decide fills in b's decisions from the reply's first rows, which it takes off.
func (r *reply) decide(b *limiter.Batch, w *rowsByHit) {
	w.begin(b)
	for i := range b.Hits {
		if w.first[i] == i {
			w.own[i] = limiter.Row{A: r.number(0), B: r.number(1), C: r.number(2)}
		}
		r.rows = r.rows[rowSize:]
	}
	limiter.Decide(b, w.byHit, r.now)
}

func (r *reply) number(i int) int64 {
	return int64(binary.LittleEndian.Uint64([]byte(r.rows[8*i : 8*i+8])))
}

// rowsByHit gives hits of one counter one row.
type rowsByHit struct {
	first []int // by hit, the first hit of the same counter
	own   []limiter.Row
	byHit []*limiter.Row
	index map[string]int
}

func (w *rowsByHit) begin(b *limiter.Batch) {
	n := len(b.Hits)
	if cap(w.own) < n {
		*w = rowsByHit{make([]int, n), make([]limiter.Row, n), make([]*limiter.Row, n), map[string]int{}}
	}
	w.first, w.own, w.byHit = w.first[:n], w.own[:n], w.byHit[:n]
	clear(w.index)
	for i := range b.Hits {
		f, ok := w.index[b.Hits[i].Key]
		if !ok {
			f = i
			w.index[b.Hits[i].Key] = i
		}
		w.first[i], w.byHit[i] = f, &w.own[f]
	}
}
