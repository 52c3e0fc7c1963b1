package rls

import (
	"strconv"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

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

// headers returns the headers to add, for the limit that a client should be told of: of a refused request
// the refusing one with the longest wait, else the one with the least room. Shadow rules are never told of.
func (c *call) headers() []*core.HeaderValue {
	o := &c.service.options.Headers
	if *o == (HeaderOptions{}) {
		return nil
	}
	d, shown := c.strictest()
	if shown == nil || shown.decision.State != limiter.Decided {
		return nil
	}
	wait := strconv.FormatInt(int64(shown.wait()/time.Second), 10)
	var list []*core.HeaderValue
	add := func(name, value string) {
		if name != "" {
			list = append(list, &core.HeaderValue{Key: name, Value: value})
		}
	}
	add(o.Limit, strconv.FormatUint(uint64(shown.limit.Requests), 10))
	add(o.Remaining, strconv.FormatUint(uint64(shown.remaining()), 10))
	add(o.Reset, wait)
	if !c.batch.Allowed {
		add(o.RetryAfter, wait)
		add(o.Rule, ruleName(d, shown))
	}
	return list
}

// strictest is the descriptor whose limit a client should be told of. An enforced denial comes before that
// of a quota, which may not have refused anything.
func (c *call) strictest() (*descriptor, *shownLimit) {
	var best *descriptor
	var bestShown *shownLimit
	for i := range c.descriptors {
		d := &c.descriptors[i]
		shown := c.shown(d)
		if shown == nil || d.role() == limiter.Shadow || c.excused(d, shown) {
			continue
		}
		if best == nil || shown.stricter(bestShown) {
			best, bestShown = d, shown
		}
	}
	return best, bestShown
}

// excused tells whether a denial refused nothing: that of a quota in a request that was admitted.
func (c *call) excused(d *descriptor, shown *shownLimit) bool {
	return c.batch.Allowed && d.role() == limiter.Quota && !shown.decision.Allowed
}

// ruleName names what refused: a limit's own name, else its rule's path, else what the request brought.
func ruleName(d *descriptor, shown *shownLimit) string {
	switch {
	case shown.limit.Name != "":
		return shown.limit.Name
	case d.rule != nil:
		return shown.limit.Path
	}
	return "override"
}
