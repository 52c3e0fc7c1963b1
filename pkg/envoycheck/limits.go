package envoycheck

import (
	"slices"
	"strings"
)

// send checks what one filter sends for one route.
func (c *checker) send(s *send) {
	for i := range s.limits {
		l := &s.limits[i]
		if s.chain.thrift {
			c.ofThrift(l)
		} else {
			c.ofHTTP(s, l)
		}
		c.values(l)
		c.optional(l)
		if !l.onDone {
			c.drop(s, l)
		}
	}
	if !s.chain.thrift {
		c.pairs(s)
	}
}

// ofHTTP checks what only an HTTP filter knows of a limit.
func (c *checker) ofHTTP(s *send, l *limit) {
	if s.filter.typedAt(&s.spot) {
		c.refused(l)
	} else if l.at.has("hits_addend") {
		c.add(hitsIgnored, l.at.at("hits_addend").problem(l.path), "Envoy ignores it here, and each request costs 1; move the list into typed_per_filter_config.%s of the route",
			filterName(s.filter))
	}
	c.override(l)
	c.addresses(s, l)
}

func filterName(f *filter) string {
	if f.name == "" {
		return "envoy.filters.http.ratelimit"
	}
	return f.name
}

func (c *checker) refused(l *limit) {
	for _, field := range []string{"stage", "disable_key"} {
		if l.at.has(field) {
			c.add(refusedField, l.at.at(field).problem(l.path), "Envoy refuses %s here; delete it", field)
		}
	}
}

// values checks what actions write by themselves.
func (c *checker) values(l *limit) {
	for i, a := range l.at.get("actions").items() {
		if a.has("dynamic_metadata") {
			c.add(deprecatedAction, a.at("dynamic_metadata").problem(l.path), "Envoy refuses this action; write metadata, with the same fields")
		}
		if i >= len(l.parts) || l.parts[i].values == nil || len(a.values) == 0 {
			continue
		}
		if v := a.values[0].get("descriptor_value"); !c.setting.formats && isFormat(v.str()) && !a.has("remote_address_match") {
			c.add(notAFormat, v.problem(l.path), "Envoy sends %s as it stands here; use the action that takes the value itself, such as request_headers", v.str())
		}
	}
}

func (c *checker) override(l *limit) {
	if static := l.at.get("limit", "rate_limit"); static != nil && (static.get("unit").str() == "" || static.get("unit").str() == "UNKNOWN") {
		c.add(overrideUnit, static.problem(l.path), "a limit without a unit has no effect; write unit: MINUTE, for example")
	}
}

// optional: a descriptor that can be left with no entry.
func (c *checker) optional(l *limit) {
	if len(l.parts) > 0 && !slices.ContainsFunc(l.parts, func(p part) bool { return p.absent != leftOut }) {
		c.add(emptyDescriptor, l.at.problem(l.path), "without %s an empty descriptor is sent, which no rule matches; delete skip_if_absent of one of them", sources(l.parts))
	}
}

func sources(parts []part) string {
	texts := make([]string, len(parts))
	for i := range parts {
		texts[i] = parts[i].source
	}
	return strings.Join(texts, " and ")
}

// generated tells whether a key is one that Envoy Gateway makes for one of the matches of a rule, all of which are
// meant to be there.
func generated(key string) bool {
	return strings.HasPrefix(key, "rule-") && strings.Contains(key, "-match-")
}

// drop: a descriptor that isn't sent without something of the request, where nothing like it is sent instead.
func (c *checker) drop(s *send, l *limit) {
	if len(l.parts) < 2 {
		return // it is about that only
	}
	for i, p := range l.parts {
		if p.absent != dropped || generated(p.key) {
			continue
		}
		if !slices.ContainsFunc(s.limits, func(o limit) bool { return covers(o, *l, p) }) {
			c.add(droppable, p.at.problem(l.path), "without %s nothing is sent, and the request has no limit; add an entry beside this one: - actions: %s",
				p.source, without(l.at.get("actions"), i))
		}
	}
}

// covers tells whether o is sent for requests without what p of l wants, by keys of l.
func covers(o, l limit, p part) bool {
	return len(o.parts) > 0 && !o.onDone && !slices.ContainsFunc(o.parts, func(q part) bool {
		return q.absent == filtered || q.absent == dropped && q.source == p.source ||
			!slices.ContainsFunc(l.parts, func(r part) bool { return r.key == q.key })
	})
}

// without is a list in one line without item i.
func without(list *tree, i int) string {
	rest := *list
	rest.values = slices.Delete(slices.Clone(list.values), i, i+1)
	return rest.flow()
}

// pairs checks that what is charged at the end of a stream is checked at its beginning, and the other way round.
func (c *checker) pairs(s *send) {
	var checked, charged []*limit
	for i := range s.limits {
		l := &s.limits[i]
		if !l.onDone {
			checked = append(checked, l)
		}
		if number := l.at.get("hits_addend", "number"); l.onDone || number == nil || !isZero(number.str()) {
			charged = append(charged, l)
		}
	}
	for _, l := range charged {
		if l.onDone && !slices.ContainsFunc(checked, l.meets) {
			c.add(chargedUnchecked, l.at.problem(l.path), "%s is charged when the stream is done, and no request is checked by it; add an entry with the same actions and hits_addend: {number: 0}",
				shapeText(shapes(l.parts)[0]))
		}
	}
	for _, l := range checked {
		if !slices.ContainsFunc(charged, l.meets) {
			c.add(checkedUncharged, l.at.at("hits_addend").problem(l.path), "%s is only checked, and nothing charges it; add an entry with the same actions and apply_on_stream_done: true",
				shapeText(shapes(l.parts)[0]))
		}
	}
}

// meets tells whether l and o can make the same descriptor.
func (l *limit) meets(o *limit) bool {
	for _, a := range shapes(l.parts) {
		for _, b := range shapes(o.parts) {
			if meet(a, b) {
				return true
			}
		}
	}
	return false
}
