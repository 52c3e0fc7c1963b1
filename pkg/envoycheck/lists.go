package envoycheck

import (
	"slices"
)

// lists checks which of the limits that stand at a spot are in force.
func (c *checker) lists(ch *chain, s *spot) {
	route, host := s.route.get("route", "rate_limits"), s.host.get("rate_limits")
	for _, owner := range s.owners() {
		c.texts(owner.get("typed_per_filter_config"), s.path)
	}
	c.texts(route, s.path)
	c.texts(host, s.hostPath)
	limiters := ch.limiters()
	if ch.hasLocal(s) {
		return // it has a use for limits that are not for the service
	}
	if len(limiters) == 0 && !slices.ContainsFunc(ch.filters, func(f filter) bool { return f.kind == "" }) {
		c.missing(route, s.path)
		c.missing(host, s.hostPath)
	}
	for _, f := range limiters {
		c.unasked(f, s)
		if len(limiters) == 1 {
			c.switchedOff(f, s)
		}
	}
	if s.forwards() && !slices.ContainsFunc(limiters, func(f *filter) bool { return f.config == nil || f.typedAt(s) }) {
		c.stages(limiters, route, s.path+".route")
		c.stages(limiters, host, s.hostPath)
	}
}

// hasLocal tells whether a filter that needs no service uses the limits of routes, too.
func (ch *chain) hasLocal(s *spot) bool {
	return slices.ContainsFunc(ch.filters, func(f filter) bool {
		own, _ := f.perRoute(s.route)
		return f.kind == localLimit && (f.config.has("descriptors") || own.has("descriptors"))
	})
}

func (c *checker) missing(list *tree, path string) {
	if len(list.items()) > 0 {
		c.add(noFilter, list.problem(path+".rate_limits"), "no rate limit filter is in the chain, so that these are never asked; add one before the router")
	}
}

// unasked: a route with limits of its own for f, of which Envoy asks none.
func (c *checker) unasked(f *filter, s *spot) {
	own, _ := f.perRoute(s.route)
	if limits := own.get("rate_limits"); len(limits.items()) > 0 && !s.forwards() {
		c.add(neverAsked, limits.problem(s.path+".rate_limits"), "Envoy answers this route by itself, and asks for nothing; delete them")
	}
}

// switchedOff: limits of the route or the virtual host that others take the place of.
func (c *checker) switchedOff(f *filter, s *spot) {
	route, host := s.route.get("route", "rate_limits"), s.host.get("rate_limits")
	own, on := f.mostSpecific(s)
	silent := on && own != nil && !own.has("rate_limits") && own.get("vh_rate_limits").str() != "IGNORE"
	for _, owner := range s.owners() {
		if m, _ := f.perRoute(owner); silent && m != own {
			c.outranked(m.get("rate_limits"), s.hostPath+"."+f.name, "a route's own configuration of the filter, without rate_limits,")
		}
	}
	switch {
	case !on || !s.forwards():
	case f.typedAt(s):
		c.outranked(route, s.path+".route", f.where(own))
		c.outranked(host, s.hostPath, f.where(own))
	case len(route.items()) > 0 && len(host.items()) > 0 && own == nil && !f.withHost(s, own, true):
		c.add(hostOff, route.problem(s.path+".route.rate_limits"),
			"they switch off those of the virtual host, line %d; write vh_rate_limits: INCLUDE into the route's typed_per_filter_config.%s, or OVERRIDE if that is meant",
			host.line, filterName(f))
	}
}

func (c *checker) outranked(list *tree, path, by string) {
	if len(list.items()) > 0 {
		c.add(limitsOff, list.problem(path+".rate_limits"), "no effect where %s takes their place; move these there", by)
	}
}

// where says where the limits of f's own are.
func (f *filter) where(own *tree) string {
	if len(own.get("rate_limits").items()) > 0 {
		return "the list in typed_per_filter_config"
	}
	return "the list of the filter " + f.name
}

// stages: a limit is sent by the filters that have its stage.
func (c *checker) stages(limiters []*filter, list *tree, path string) {
	for _, entry := range list.items() {
		same := func(f *filter) bool { return stage(f.config) == stage(entry) }
		if len(limiters) > 0 && !slices.ContainsFunc(limiters, same) {
			c.add(wrongStage, entry.at("stage").problem(path+".rate_limits"), "no rate limit filter has stage %s, so that it is never sent; the filter has stage %s",
				stage(entry), stage(limiters[0].config))
		}
	}
}
