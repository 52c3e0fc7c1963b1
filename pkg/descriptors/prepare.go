package descriptors

import (
	"net/netip"
	"strings"
	"unsafe"

	"gopkg.in/yaml.v3"
)

// preparation is what is done to the values of a key before they are matched and counted.
type preparation struct {
	stripQuery, lowercase, hash bool
	hashKey                     *HashKey
	mask                        bool
	v4, v6                      int // bits of an address that are kept
}

// value prepares a value that a request brings. It appends hashes to dst, which they alias.
func (p *preparation) value(dst []byte, v string) ([]byte, string) {
	if p.stripQuery {
		v, _, _ = strings.Cut(v, "?")
	}
	if p.lowercase {
		v = strings.ToLower(v)
	}
	if p.mask {
		v = p.masked(v)
	}
	if p.hash {
		start := len(dst)
		dst = p.hashKey.appendHash(dst, v)
		v = unsafe.String(&dst[start], len(dst)-start)
	}
	return dst, v
}

// masked is the network of an address, as 2001:db8:1:2::/64, or the address itself if all of it is kept. What
// is no address stays as it is. An IPv4 address in IPv6's clothes is one.
func (p *preparation) masked(v string) string {
	addr, err := netip.ParseAddr(v)
	if err != nil {
		return v
	}
	addr = addr.Unmap().WithZone("")
	bits := p.v6
	if addr.Is4() {
		bits = p.v4
	}
	if bits == addr.BitLen() {
		return addr.String()
	}
	network, err := addr.Prefix(bits)
	if err != nil {
		return v
	}
	return network.String()
}

// address reads what masked returns.
func address(v string) (netip.Addr, bool) {
	if network, err := netip.ParsePrefix(v); err == nil {
		return network.Addr(), true
	}
	addr, err := netip.ParseAddr(v)
	return addr.Unmap().WithZone(""), err == nil
}

// preparations reads a file's keys block.
func (r *reader) preparations(n *yaml.Node) map[string]*preparation {
	if n.Kind != yaml.MappingNode {
		r.errorf(n, "keys", "want a mapping of keys to what is done to their values, got %s", describe(n))
		return nil
	}
	keys := map[string]*preparation{}
	for _, f := range r.merged(n, "keys", 0) {
		path := "keys." + f.key.Value
		p := &preparation{hashKey: r.hashKey, v4: 32, v6: 128}
		for _, g := range r.fields(f.value, path, keysBlock) {
			r.preparation(p, g, join(path, g.key.Value))
		}
		keys[f.key.Value] = p
	}
	return keys
}

func (r *reader) preparation(p *preparation, f field, path string) {
	switch f.key.Value {
	case "strip_query":
		p.stripQuery = r.flag(f.value, path)
	case "lowercase":
		p.lowercase = r.flag(f.value, path)
	case "hash":
		p.hash = r.flag(f.value, path)
	case "ip_mask":
		p.mask = true
		for _, g := range r.fields(f.value, path, maskBlock) {
			most := 32
			if g.key.Value == "v6" {
				most = 128
			}
			bits := int(r.number(g.value, join(path, g.key.Value)))
			if bits > most {
				r.errorf(g.value, join(path, g.key.Value), "an address has %d bits", most)
			}
			if g.key.Value == "v6" {
				p.v6 = min(bits, most)
			} else {
				p.v4 = min(bits, most)
			}
		}
	}
}

// prepared is a value of a rule, prepared as those that it is compared with.
func (r *reader) prepared(n *yaml.Node, path, key, value string) string {
	p := r.keys[key]
	switch {
	case p == nil || r.asSent:
		return value
	case !strings.Contains(value, "*"):
		_, value = p.value(nil, value)
		return value
	case p.hash || p.mask:
		r.errorf(n, path, "values of %s are hashed or masked, which no star can match; write whole values", key)
	case p.lowercase:
		return strings.ToLower(value)
	}
	return value
}
