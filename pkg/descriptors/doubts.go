package descriptors

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// maxCompared bounds the wildcards of one key that are compared with each other.
const maxCompared = 300

// trusted are the keys of Envoy's actions that a client can't choose the value of.
var trusted = []string{
	"remote_address", "masked_remote_address", "remote_address_match", "source_cluster", "destination_cluster", "generic_key",
}

// doubts warns of what siblings probably don't mean.
func (c *compiler) doubts(specs []*descriptorSpec) {
	byKey := map[string][]*descriptorSpec{}
	for _, s := range specs {
		byKey[s.key] = append(byKey[s.key], s)
		if s.exempt && !slices.Contains(trusted, s.key) {
			c.warn(s, "if a client can choose %s, as it can a header, it can make its requests free", s.key)
		}
		if strings.Contains(s.key, "*") && !s.literal && !c.replaced {
			c.warn(s, "a star in a key is a star, and matches nothing else; stars in values match")
		}
	}
	if c.replaced {
		texts := make([]oldText, len(specs))
		for i, s := range specs {
			texts[i] = oldText{s.key, s.value, s.path}
		}
		doubtJoined(texts, func(i int, text string) { c.warn(specs[i], "%s", text) })
	}
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		siblings := byKey[key]
		c.doubtUseless(siblings)
		c.doubtHidden(siblings)
		c.doubtWildcards(siblings)
	}
}

func (c *compiler) warn(s *descriptorSpec, format string, args ...any) {
	c.report(Warning, s.at, s.path, fmt.Sprintf(format, args...))
}

// doubtUseless: a descriptor with neither limit nor children does nothing, unless it exempts a value from a
// sibling that would match it too.
func (c *compiler) doubtUseless(siblings []*descriptorSpec) {
	for _, s := range siblings {
		if len(s.limits) > 0 || len(s.children) > 0 || s.exempt {
			continue
		}
		exempts := slices.ContainsFunc(siblings, func(o *descriptorSpec) bool { return o != s && o.covers(s) })
		if !exempts {
			c.warn(s, "neither a rate_limit nor descriptors below it: it does nothing")
		}
	}
}

// covers tells whether s would match the values of o if o weren't there.
func (s *descriptorSpec) covers(o *descriptorSpec) bool {
	switch {
	case s.matched() == "":
		return true
	case !s.wild() || o.value == "":
		return false
	}
	w := newWildcard(s.value)
	return w.matches(o.value)
}

// doubtHidden: a value that matches more closely hides what stands below the key alone.
func (c *compiler) doubtHidden(siblings []*descriptorSpec) {
	wide := slices.IndexFunc(siblings, func(s *descriptorSpec) bool { return s.matched() == "" })
	if wide < 0 {
		return
	}
	for _, s := range siblings {
		if s.matched() == "" || len(s.children) == 0 {
			continue
		}
		for _, child := range siblings[wide].children {
			if !slices.ContainsFunc(s.children, func(o *descriptorSpec) bool { return o.key == child.key }) {
				c.warn(s, "%s stands below %s and not here, so %s=%s, %s=… has no limit: there is no way back; repeat it here",
					child.key, siblings[wide].path, s.key, s.matched(), child.key)
			}
		}
	}
}

// doubtWildcards: of two wildcards that match one value, only one is asked.
func (c *compiler) doubtWildcards(siblings []*descriptorSpec) {
	var stars []*descriptorSpec
	for _, s := range siblings {
		if s.wild() {
			stars = append(stars, s)
		}
	}
	if len(stars) > maxCompared {
		return
	}
	for i, second := range stars {
		for _, first := range stars[:i] {
			c.doubtPair(first, second)
		}
	}
}

func (c *compiler) doubtPair(first, second *descriptorSpec) {
	a, b := newWildcard(first.value), newWildcard(second.value)
	switch {
	case c.replaced && compareWildcards(a, b) > 0 && a.overlaps(&b):
		c.warn(second, "the replaced service takes the first of the file that matches, here %s, and this one the more specific, here %s; put that first",
			first.path, second.path)
	case c.options.FileOrder && first.covers(second):
		c.warn(second, "never reached: %s comes first and matches all of it; put it before that", first.path)
	case first.covers(second) || second.covers(first):
		// One is more specific than the other, which is what is meant.
	case a.overlaps(&b):
		winner := first
		if !c.options.FileOrder && compareWildcards(a, b) > 0 {
			winner = second
		}
		c.warn(second, "some values match %s as well; those get %s", first.path, winner.path)
	}
}

// overlaps tells whether a value that has only what both ask for at its ends matches both.
func (w *wildcard) overlaps(o *wildcard) bool {
	prefix, suffix := w.prefix, w.suffix
	if len(o.prefix) > len(prefix) {
		prefix = o.prefix
	}
	if len(o.suffix) > len(suffix) {
		suffix = o.suffix
	}
	value := prefix + strings.Join(w.middle, "") + strings.Join(o.middle, "") + suffix
	return w.matches(value) && o.matches(value)
}
