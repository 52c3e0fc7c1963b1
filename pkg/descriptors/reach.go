package descriptors

import (
	"cmp"
	"maps"
	"slices"
)

// Pattern is what is known of an entry before a request brings it.
type Pattern struct {
	Key string
	// Values are the only ones that there can be; nil is any.
	Values []string
}

// Reach returns the rules that descriptors with such entries can match, in no particular order. If there are none
// it says why, as Unmatched does. Values are as requests bring them: Reach prepares them.
func (d *Domain) Reach(patterns []Pattern) (rules []*Rule, why string) {
	places := map[*node][]Entry{&d.root: nil} // and the entries that lead there
	for len(patterns) > 0 {
		next := map[*node][]Entry{}
		for n, way := range places {
			for to, value := range d.reach(n, patterns[0]) {
				next[to] = append(slices.Clip(way), Entry{patterns[0].Key, value})
			}
		}
		if len(next) == 0 {
			break
		}
		places, patterns = next, patterns[1:]
	}
	for n := range places {
		if len(patterns) == 0 && n.rule != nil {
			rules = append(rules, n.rule)
		}
	}
	if rules == nil {
		e := example(places, patterns)
		why = d.why(e, e)
	}
	return rules, why
}

// anyValue stands for a value that could be any.
const anyValue = "…"

// reach are the places below n that an entry can lead to, each with a value that leads there.
func (d *Domain) reach(n *node, p Pattern) map[*node]string {
	b := n.children[p.Key]
	to := map[*node]string{}
	if b == nil {
		return to
	}
	for _, v := range p.Values {
		e := []Entry{{p.Key, v}}
		d.Prepare(e)
		if next := n.child(&e[0]); next != nil {
			to[next] = e[0].Value
		}
	}
	if p.Values != nil {
		return to
	}
	for v, next := range b.listed {
		to[next] = v
	}
	for v, next := range b.exact {
		to[next] = v
	}
	for _, next := range b.networks {
		to[next.node] = next.Addr().String()
	}
	for i := range b.wildcards {
		to[b.wildcards[i].node] = b.wildcards[i].text
	}
	if b.any != nil {
		to[b.any] = anyValue
	}
	return to
}

// example is a descriptor that leads to one of places, of which it is the first in order, and has such entries
// behind that.
func example(places map[*node][]Entry, rest []Pattern) []Entry {
	ways := slices.SortedFunc(maps.Values(places), func(a, b []Entry) int {
		return slices.CompareFunc(a, b, func(x, y Entry) int { return cmp.Compare(x.Value, y.Value) })
	})
	way := ways[0]
	for _, p := range rest {
		value := anyValue
		if len(p.Values) > 0 {
			value = p.Values[0]
		}
		way = append(slices.Clip(way), Entry{p.Key, value})
	}
	return way
}

// Place is where the rule stands, as a Problem without a text.
func (r *Rule) Place() Problem { return r.at }

// Place is where the domain's first file names it, as a Problem without a text.
func (d *Domain) Place() Problem { return d.at }
