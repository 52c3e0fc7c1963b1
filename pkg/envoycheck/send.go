package envoycheck

import "fmt"

// send is what a filter sends for the requests of a route.
type send struct {
	chain  *chain
	filter *filter
	spot   spot
	domain *tree // nil: it isn't known
	limits []limit
}

// limit is an entry of a list of rate_limits.
type limit struct {
	at     *tree
	path   string
	parts  []part
	onDone bool // it is sent when the stream is done, rather than before the request is let through
}

// spot is a route, or one of the clusters that it is divided among, and all that it stands in.
type spot struct {
	table, host, route *tree
	weighted           *tree // nil: it isn't divided
	hostPath, path     string
}

// owners are those that may have configuration for a filter, the one that counts first.
func (s *spot) owners() []*tree { return []*tree{s.weighted, s.route, s.host, s.table} }

// forwards tells whether requests are sent on. Envoy asks for no others.
func (s *spot) forwards() bool {
	for _, answer := range []string{"redirect", "direct_response", "filter_action", "non_forwarding_action"} {
		if s.route.has(answer) {
			return false
		}
	}
	return true
}

func (s *spot) cluster() string {
	if s.weighted != nil {
		return s.weighted.get("name").str()
	}
	return s.route.get("route", "cluster").str()
}

// tablesOf are the route configurations of a chain, as far as they are known.
func (c *Config) tablesOf(ch *chain) []*tree {
	switch {
	case ch.table != nil:
		return []*tree{ch.table}
	case ch.thrift:
		return nil
	case ch.partial || ch.scoped || ch.rds == "":
		return c.tables
	}
	var named []*tree
	for _, t := range c.tables {
		if name := t.get("name").str(); name == "" || name == ch.rds {
			named = append(named, t)
		}
	}
	return named
}

// allChains are the chains, or if there is none one with a filter of which nothing is known, where there are
// routes that want one.
func (c *Config) allChains() []*chain {
	if len(c.chains) == 0 && len(c.tables) > 0 {
		return []*chain{{name: "routes", partial: true}}
	}
	return c.chains
}

// limiters are the filters of ch that ask a rate limit service. If it has none although it may have filters that
// aren't known, there is one of those.
func (ch *chain) limiters() []*filter {
	var list []*filter
	for i := range ch.filters {
		if ch.filters[i].kind == globalLimit {
			list = append(list, &ch.filters[i])
		}
	}
	if list == nil && ch.partial {
		list = append(list, &filter{kind: globalLimit})
	}
	return list
}

// spots are the routes of route configurations.
func spots(tables []*tree) []spot {
	var list []spot
	for _, table := range tables {
		for i, host := range table.get("virtual_hosts").items() {
			name := host.get("name").str()
			if name == "" {
				name = fmt.Sprintf("virtual_hosts[%d]", i)
			}
			for j, route := range host.get("routes").items() {
				s := spot{table: table, host: host, route: route, hostPath: name, path: fmt.Sprintf("%s.routes[%d]", name, j)}
				list = append(list, s.divided()...)
			}
		}
	}
	return list
}

// divided is s once for each cluster that its route is divided among.
func (s *spot) divided() []spot {
	weighted := s.route.get("route", "weighted_clusters", "clusters").items()
	if len(weighted) == 0 {
		return []spot{*s}
	}
	list := make([]spot, len(weighted))
	for i, w := range weighted {
		list[i] = *s
		list[i].weighted = w
	}
	return list
}

// perRoute is the configuration that an owner has for a filter. A filter without a name has any.
func (f *filter) perRoute(owner *tree) (message *tree, off bool) {
	configs := owner.get("typed_per_filter_config")
	if !configs.isMapping() {
		return nil, false
	}
	for i, key := range configs.keys {
		kind, m := configs.values[i].typed()
		if kind == filterConfig {
			off = m.get("disabled").isTrue()
			if config := m.get("config"); config != nil {
				kind, m = config.typed()
			}
		}
		if key != nil && key.text == f.name || f.name == "" && kind == globalRoute {
			return m, off
		}
	}
	return nil, false
}

// mostSpecific is the configuration of the filter that counts at s, nil if there is none, and whether the filter
// is on there.
func (f *filter) mostSpecific(s *spot) (message *tree, on bool) {
	for _, owner := range s.owners() {
		if message, off := f.perRoute(owner); message != nil || off {
			return message, !off
		}
	}
	return nil, !f.disabled
}

// source is a list of rate limits that is in force at a spot.
type source struct {
	list *tree
	path string
}

// sources are the lists that f sends at s.
func (f *filter) sources(s *spot) []source {
	own, on := f.mostSpecific(s)
	if !on || !s.forwards() {
		return nil
	}
	if l := own.get("rate_limits"); len(l.items()) > 0 {
		return []source{{l, s.path + "." + f.name + ".rate_limits"}}
	}
	if l := f.config.get("rate_limits"); len(l.items()) > 0 {
		return []source{{l, f.name + ".rate_limits"}}
	}
	var list []source
	route := s.route.get("route", "rate_limits")
	if len(route.items()) > 0 {
		list = append(list, source{route, s.path + ".route.rate_limits"})
	}
	if f.withHost(s, own, len(list) > 0) {
		list = append(list, source{s.host.get("rate_limits"), s.hostPath + ".rate_limits"})
	}
	return list
}

// withHost tells whether the limits of the virtual host are in force, too.
func (f *filter) withHost(s *spot, own *tree, routeHas bool) bool {
	if s.route.get("route", "include_vh_rate_limits").isTrue() {
		return true
	}
	switch own.get("vh_rate_limits").str() {
	case "INCLUDE", "1":
		return true
	case "IGNORE", "2":
		return false
	}
	return !routeHas
}

// typedAt tells whether f's configuration of its own, rather than the route's, has the limits at s.
func (f *filter) typedAt(s *spot) bool {
	own, _ := f.mostSpecific(s)
	return len(own.get("rate_limits").items()) > 0 || len(f.config.get("rate_limits").items()) > 0
}

// stage is the number by which a filter chooses, and a limit is chosen.
func stage(t *tree) string {
	if text := t.get("stage").str(); text != "" {
		return text
	}
	return "0"
}

// sends are all that Envoy sends.
func (c *Config) sends() []send {
	var list []send
	for _, ch := range c.allChains() {
		places := spots(c.tablesOf(ch))
		if len(places) == 0 {
			places = spots([]*tree{hostTable(&tree{tag: "!!map"})})
		}
		for _, f := range ch.limiters() {
			for _, s := range places {
				list = append(list, c.send(ch, f, s))
			}
		}
	}
	return list
}

func (c *Config) send(ch *chain, f *filter, s spot) send {
	own, _ := f.mostSpecific(&s)
	r := send{chain: ch, filter: f, spot: s, domain: own.get("domain")}
	if r.domain.str() == "" {
		r.domain = f.config.get("domain")
	}
	setting := c.setting
	setting.cluster, setting.thrift = s.cluster(), ch.thrift
	typed := f.typedAt(&s)
	for _, src := range f.sources(&s) {
		for i, entry := range src.list.items() {
			if !typed && f.config != nil && stage(entry) != stage(f.config) {
				continue
			}
			r.limits = append(r.limits, limit{
				at: entry, path: fmt.Sprintf("%s[%d]", src.path, i), parts: setting.parts(entry),
				onDone: !ch.thrift && entry.get("apply_on_stream_done").isTrue(),
			})
		}
	}
	return r
}

// parts are what the actions of a limit add. An action that isn't known adds a part of which nothing is known but
// its name.
func (s *setting) parts(entry *tree) []part {
	var parts []part
	known := actions
	if s.thrift {
		known = thriftActions
	}
	for _, a := range entry.get("actions").items() {
		if len(a.keys) == 0 || !a.isMapping() || a.keys[0] == nil {
			continue
		}
		name := snake(a.keys[0].text)
		p := part{key: name, at: a.keys[0]}
		if read := known[name]; read != nil {
			read(&p, a.values[0], s)
		}
		parts = append(parts, p)
	}
	return parts
}
