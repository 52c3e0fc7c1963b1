package redisstore

import (
	"errors"
	"slices"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// rows are the rows of a call's counters, as far as its groups are decided.
type rows struct {
	byCounter []row
	byHit     []*limiter.Row // of the group that is being decided
}

// row is a counter's.
type row struct {
	limiter.Row
	read bool
}

func (r *rows) reset() {
	clear(r.byCounter)
	r.byCounter = r.byCounter[:0]
}

// decide decides all requests of the call by a reply of the script, which has the rows in the order in which its
// groups come to them. On an error those that it could not reach are undecided.
func (c *call) decide(r reply) error {
	c.rows.byCounter = slices.Grow(c.rows.byCounter[:0], len(c.counters))[:len(c.counters)]
	for _, n := range c.encoding.general.groups {
		if err := c.decideGroup(&c.groups[n], &r, (*reply).row); err != nil {
			return err
		}
	}
	for _, n := range c.encoding.plain.groups {
		if err := c.decideGroup(&c.groups[n], &r, (*reply).window); err != nil {
			return err
		}
	}
	return nil
}

func (c *call) decideGroup(g *group, r *reply, next func(*reply, *limiter.Row, *limiter.Limit) error) error {
	k := &c.kinds[g.kind]
	hits := c.hits[k.first:k.end]
	c.rows.byHit = c.rows.byHit[:0]
	for i, n := range c.countersOf(g) {
		row := &c.rows.byCounter[n]
		if !row.read {
			if err := next(r, &row.Row, hits[i].Limit); err != nil {
				return err
			}
			row.read = true
		}
		c.rows.byHit = append(c.rows.byHit, &row.Row)
	}
	for w := g.first; w != nil; w = w.like {
		w.decide(hits, c.rows.byHit, r.now)
	}
	return nil
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

// numberSize is the size of a number in a reply.
const numberSize = 8

func parseReply(text string) (reply, error) {
	r := reply{rows: text}
	if len(text) == 0 || len(text)%numberSize != 0 {
		return r, errReply
	}
	if r.now = r.number(); r.now <= 0 {
		return r, errReply
	}
	return r, nil
}

// row reads the row of a counter of the general section.
func (r *reply) row(row *limiter.Row, l *limiter.Limit) error {
	if len(r.rows) < 3*numberSize {
		return errRows
	}
	row.A, row.B, row.C = r.number(), r.number(), r.number()
	if l.Algorithm != limiter.SlidingLog {
		return nil
	}
	times := row.C
	if times < 0 || times > 2*limiter.MaxLog || int64(len(r.rows)) < times*numberSize {
		return errRows
	}
	row.C, row.Log = 0, make([]int64, times)
	for i := range row.Log {
		row.Log[i] = r.number()
	}
	return nil
}

// window reads the row of a counter of the plain section: its value, of whose window there are the last bits only.
func (r *reply) window(row *limiter.Row, l *limiter.Limit) error {
	if len(r.rows) < numberSize {
		return errRows
	}
	const windows = 1 << 20
	value, present := r.number(), r.now/int64(l.Period/time.Microsecond)
	ahead := (value>>32 - present) & (windows - 1)
	row.A, row.B = present+ahead, value&limiter.MaxCost
	return nil
}

// number reads the next one, which is there.
func (r *reply) number() int64 {
	s := r.rows
	r.rows = s[numberSize:]
	return int64(s[0]) | int64(s[1])<<8 | int64(s[2])<<16 | int64(s[3])<<24 |
		int64(s[4])<<32 | int64(s[5])<<40 | int64(s[6])<<48 | int64(s[7])<<56
}
