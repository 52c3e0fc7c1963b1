package envoycheck

import (
	"maps"
	"slices"
	"strings"
)

const (
	thriftProxy = "envoy.extensions.filters.network.thrift_proxy.v3.ThriftProxy"
	thriftLimit = "envoy.extensions.filters.network.thrift_proxy.filters.ratelimit.v3.RateLimit"
	methodName  = ":method-name"
)

// thriftActions are those that a Thrift filter takes. It has code of its own for them, which does less.
var thriftActions = map[string]action{
	"source_cluster":      actions["source_cluster"],
	"destination_cluster": actions["destination_cluster"],
	"remote_address":      func(*part, *tree, *setting) {}, // of whoever connects
	"generic_key":         func(p *part, fields *tree, _ *setting) { p.values = []string{fields.get("descriptor_value").str()} },
	"request_headers":     thriftHeader,
	"header_value_match":  thriftHeaderMatch,
}

// thriftIgnores are fields of actions that have no effect for Thrift.
var thriftIgnores = map[string]string{
	"generic_key": "descriptor_key", "header_value_match": "descriptor_key", "request_headers": "skip_if_absent",
}

func thriftHeader(p *part, fields *tree, _ *setting) {
	name := fields.get("header_name").str()
	p.named(fields)
	p.source, p.absent = "header "+name, dropped
	if strings.EqualFold(name, methodName) {
		p.absent = never
	}
}

func thriftHeaderMatch(p *part, fields *tree, _ *setting) {
	p.key, p.values, p.absent = "header_match", []string{fields.get("descriptor_value").str()}, filtered
}

// thrift reads a Thrift proxy as a chain, whose route configuration is one virtual host.
func (c *Config) thrift(t *tree, name string) {
	if name == "" {
		name = t.get("stat_prefix").str()
	}
	ch := &chain{name: name, thrift: true}
	if routes := t.get("route_config"); routes != nil {
		ch.table = hostTable(routes)
	}
	ch.add(t.get("thrift_filters").items())
	c.chains = append(c.chains, ch)
}

// ofThrift names what a limit has that a Thrift filter doesn't know.
func (c *checker) ofThrift(l *limit) {
	for _, field := range []string{"limit", "hits_addend", "apply_on_stream_done"} {
		if l.at.has(field) {
			c.add(notOfThrift, l.at.at(field).problem(l.path), "Envoy ignores %s for Thrift; delete it", field)
		}
	}
	for _, a := range l.at.get("actions").items() {
		if !a.isMapping() || len(a.keys) == 0 || a.keys[0] == nil {
			continue
		}
		name, fields := snake(a.keys[0].text), a.values[0]
		ignored := thriftIgnores[name]
		switch {
		case thriftActions[name] == nil:
			c.add(notOfThrift, a.keys[0].problem(l.path), "Envoy refuses %s for Thrift; there is %s",
				name, strings.Join(slices.Sorted(maps.Keys(thriftActions)), ", "))
		case ignored != "" && fields.has(ignored) && fields.get(ignored).str() != "false":
			c.add(notOfThrift, fields.at(ignored).problem(l.path), "Envoy ignores %s for Thrift; delete it", ignored)
		}
	}
}
