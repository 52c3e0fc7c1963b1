package descriptors

import (
	"fmt"
	"slices"
	"strings"
)

// Explanation is how a descriptor is matched, or why no rule matches it. It is the caller's.
type Explanation struct {
	// Levels has a level for each entry in turn, to the first that leads nowhere, if one does. It is empty for an
	// unknown domain.
	Levels []Level
	// Rule is what Match finds, or nil.
	Rule *Rule
	// Why says why there is no rule, and what is nearest, or is "". It holds none of the descriptor's values.
	Why string
}

// Level is how one entry of a descriptor is matched.
type Level struct {
	// Key and Sent are the entry as it was sent, Value is what was matched, and Prepared what was done to it before,
	// in the words of the rules' keys block, or "".
	Key      string `json:"key"`
	Sent     string `json:"sent"`
	Value    string `json:"value"`
	Prepared string `json:"prepared,omitempty"`
	// Match is how it was matched.
	Match Match `json:"match"`
	// Path and At are the place in the rules that it led to, as Rule.Path and file:line; both are "" if nowhere.
	Path string `json:"path,omitempty"`
	At   string `json:"at,omitempty"`
	// Others are the nearest other places for the key, those that match as well first, and More is how many there
	// are beside them, as far as they were counted.
	Others []Other `json:"others,omitempty"`
	More   int     `json:"more,omitempty"`
}

// Other is a place in the rules that an entry was not led to, and why.
type Other struct {
	Path string `json:"path"`
	At   string `json:"at"`
	Why  string `json:"why"`
}

// Match is what matched a value.
type Match string

// The ways to match a value, the closest first.
const (
	MatchExact    Match = "exact"
	MatchListed   Match = "listed"  // it is one of values
	MatchNetwork  Match = "network" // it is in one of cidrs
	MatchWildcard Match = "wildcard"
	MatchAny      Match = "any"  // there is no value beside the key
	MatchNone     Match = "none" // it leads nowhere
)

// Explain says how a descriptor, whose entries are as they were sent, is matched. It changes nothing.
func (rs *Ruleset) Explain(domain string, sent []Entry) Explanation {
	d := rs.domains[domain]
	if d == nil {
		return Explanation{Why: rs.Why(domain, sent)}
	}
	entries := slices.Clone(sent)
	d.Prepare(entries)
	x := Explanation{Rule: d.Match(entries)}
	n := &d.root
	for i := 0; i < len(entries) && n != nil; i++ {
		var l Level
		l, n = d.level(n, sent[i], entries[i])
		x.Levels = append(x.Levels, l)
	}
	if x.Rule == nil {
		x.Why = d.why(sent, entries)
	}
	return x
}

// level is where entry e, sent as such, leads from n.
func (d *Domain) level(n *node, sent, e Entry) (Level, *node) {
	l := Level{Key: e.Key, Sent: sent.Value, Value: e.Value, Match: MatchNone}
	if p := d.keys[e.Key]; p != nil {
		l.Prepared = p.words()
	}
	b, next := n.children[e.Key], n.child(&e)
	if next != nil {
		l.Match, l.Path, l.At = b.how(next, e.Value), next.origin.path, next.origin.String()
	}
	if b != nil {
		l.Others, l.More = b.others(next, e)
	}
	return l, next
}

// how is the way in which value led to n.
func (b *branch) how(n *node, value string) Match {
	switch n {
	case b.exact[value]:
		return MatchExact
	case b.listed[value]:
		return MatchListed
	case b.network(value):
		return MatchNetwork
	case b.any:
		return MatchAny
	}
	return MatchWildcard
}

// maxOthers is how many places that weren't chosen are told of.
const maxOthers = 4

// others are the places of b beside the chosen one, and how many there are beyond those.
func (b *branch) others(chosen *node, e Entry) (list []Other, more int) {
	matching := b.matching(e.Value)
	places := append(slices.Clone(matching), slices.DeleteFunc(b.places(), func(n *node) bool { return slices.Contains(matching, n) })...)
	for i, n := range places {
		switch {
		case n == chosen || slices.Contains(places[:i], n):
		case len(list) == maxOthers:
			more++
		default:
			list = append(list, Other{n.origin.path, n.origin.String(), b.whyOther(n, e, i < len(matching))})
		}
	}
	return list, more
}

func (b *branch) whyOther(n *node, e Entry, matches bool) string {
	switch {
	case matches:
		return "it matches as well, and comes later"
	case b.isNetwork(n):
		return "the value is not in it"
	case b.isWildcard(n):
		return "the wildcard doesn't match"
	case strings.HasSuffix(strings.ToLower(n.origin.path), strings.ToLower("."+ruleName(e.Key, e.Value))):
		return "it differs in case"
	}
	return "it is for another value"
}

func (b *branch) isNetwork(n *node) bool {
	return slices.ContainsFunc(b.networks, func(o networkNode) bool { return o.node == n })
}

func (b *branch) isWildcard(n *node) bool {
	return slices.ContainsFunc(b.wildcards, func(o wildcardNode) bool { return o.node == n })
}

// words is p as the rules' keys block has it.
func (p *preparation) words() string {
	var list []string
	for _, f := range []struct {
		on   bool
		name string
	}{
		{p.stripQuery, "strip_query"}, {p.lowercase, "lowercase"}, {p.mask, fmt.Sprintf("ip_mask /%d, /%d", p.v4, p.v6)}, {p.hash, "hash"},
	} {
		if f.on {
			list = append(list, f.name)
		}
	}
	return strings.Join(list, ", ")
}
