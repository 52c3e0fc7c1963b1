package rls

import (
	"strconv"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// HeaderOptions say which response headers Envoy adds for the client. A header without a name is left out.
type HeaderOptions struct {
	// Limit, Remaining and Reset tell of the limit nearest to refusing: its number, what is left of it, and
	// the seconds until it is whole again, or until a refused client may come back.
	Limit, Remaining, Reset string
	// RetryAfter is sent with a refusal: the seconds to wait, RFC 9110 section 10.2.3.
	RetryAfter string
	// Rule is sent with a refusal: the name of the limit that refused, else its rule's path.
	Rule string
}

// headers writes the headers to add, for the limit that a client should be told of: of a refused request
// the refusing one with the longest wait, else the one with the least room. Shadow rules are never told of.
func (c *call) headers() {
	o := &c.service.options.Headers
	if *o == (HeaderOptions{}) || c.rehearses() {
		return
	}
	d, shown := c.strictest()
	if d == nil || !shown.decision.Known() {
		return
	}
	wait := int64(shown.wait() / time.Second)
	c.numberHeader(o.Limit, int64(shown.limit.Requests))
	c.numberHeader(o.Remaining, int64(shown.remaining()))
	c.numberHeader(o.Reset, wait)
	if c.refused() {
		c.numberHeader(o.RetryAfter, wait)
		c.header(o.Rule, ruleName(d, shown))
	}
}

func (c *call) numberHeader(name string, value int64) {
	var digits [20]byte
	c.header(name, string(strconv.AppendInt(digits[:0], value, 10)))
}

// header writes a header, unless it has no name.
func (c *call) header(name, value string) {
	if name == "" {
		return
	}
	start := c.response.open(answerHeader)
	c.response.text(headerKey, name)
	c.response.text(headerValue, value)
	c.response.close(start)
}

// strictest is the descriptor whose limit a client should be told of. An enforced denial comes before that
// of a quota, which may not have refused anything.
func (c *call) strictest() (best *descriptor, bestShown shownLimit) {
	for i := range c.descriptors {
		d := &c.descriptors[i]
		shown, ok := c.shown(d)
		if !ok || d.role == limiter.Shadow || c.excused(d, shown) {
			continue
		}
		if best == nil || shown.stricter(bestShown) {
			best, bestShown = d, shown
		}
	}
	return best, bestShown
}

// excused tells whether a denial refused nothing: that of a quota in a request that was admitted.
func (c *call) excused(d *descriptor, shown shownLimit) bool {
	return c.batch.Allowed && d.role == limiter.Quota && !shown.decision.Allowed
}

// ruleName names what refused: a limit's own name, else its rule's path, else what the request brought.
func ruleName(d *descriptor, shown shownLimit) string {
	switch {
	case shown.limit.Name != "":
		return shown.limit.Name
	case d.rule != nil:
		return shown.limit.Path
	}
	return "override"
}
