package descriptors

import (
	"fmt"
	"maps"
	"slices"
)

// merge adds the rules of another file for the same domain to d. It returns what keeps the two apart, and then d
// is as it was: the same key and value at the top of both, or different words on how values are prepared.
func (d *Domain) merge(other *Domain, fileOrder bool) (conflict string) {
	if other.partition != "" && d.partition != "" && d.partition != other.partition {
		return "partition_by is another"
	}
	for key := range other.keys {
		if d.keys[key] != nil && *d.keys[key] != *other.keys[key] {
			return fmt.Sprintf("keys.%s is another", key)
		}
	}
	for key, b := range other.root.children {
		if at := d.root.children[key].common(b); at != "" {
			return fmt.Sprintf("%s is in both", ruleName(key, at[1:]))
		}
	}
	if d.root.children == nil {
		d.root.children = map[string]*branch{}
	}
	for key, b := range other.root.children {
		if d.root.children[key] == nil {
			d.root.children[key] = b
			continue
		}
		d.root.children[key].add(b, fileOrder)
	}
	if d.keys == nil {
		d.keys = map[string]*preparation{}
	}
	maps.Copy(d.keys, other.keys)
	if d.partition == "" {
		d.partition = other.partition
	}
	d.rules = append(d.rules, other.rules...)
	return ""
}

// common returns "=" and what both branches have a place for, or "".
func (b *branch) common(other *branch) string {
	if b == nil {
		return ""
	}
	if b.any != nil && other.any != nil {
		return "="
	}
	for v := range other.exact {
		if b.exact[v] != nil {
			return "=" + v
		}
	}
	for v := range other.listed {
		if b.listed[v] != nil {
			return "=" + v
		}
	}
	for _, w := range other.wildcards {
		if slices.ContainsFunc(b.wildcards, func(o wildcardNode) bool { return o.text == w.text }) {
			return "=" + w.text
		}
	}
	for _, n := range other.networks {
		if slices.ContainsFunc(b.networks, func(o networkNode) bool { return o.Prefix == n.Prefix }) {
			return "=" + n.String()
		}
	}
	return ""
}

// add adds the places of another branch, which has none in common.
func (b *branch) add(other *branch, fileOrder bool) {
	maps.Copy(b.exact, other.exact)
	maps.Copy(b.listed, other.listed)
	b.wildcards = append(b.wildcards, other.wildcards...)
	b.networks = append(b.networks, other.networks...)
	if b.any == nil {
		b.any = other.any
	}
	b.sort(fileOrder)
}
