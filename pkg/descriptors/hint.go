package descriptors

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Unmatched says in words why no limit applies to a descriptor for which Match finds no rule, with the
// nearest thing that its author may have meant.
func (rs *Ruleset) Unmatched(domain string, entries []Entry) string {
	d := rs.domains[domain]
	if d == nil {
		return fmt.Sprintf("no rules for domain %s%s", domain, mean(domain, slices.Collect(maps.Keys(rs.domains))))
	}
	why := d.why(entries)
	if why != "" {
		why = ": " + why
	}
	return fmt.Sprintf("no rule matches %s in domain %s%s", entriesText(entries), domain, why)
}

func entriesText(entries []Entry) string {
	if len(entries) == 0 {
		return "a descriptor without entries"
	}
	texts := make([]string, len(entries))
	for i, e := range entries {
		texts[i] = e.Key + "=" + e.Value
	}
	return strings.Join(texts, ", ")
}

// mean is ": did you mean `x`?", or the few words there are, or "".
func mean(word string, candidates []string) string {
	if c, ok := nearest(word, candidates); ok {
		return fmt.Sprintf(": did you mean `%s`?", c)
	}
	if len(candidates) == 0 || len(candidates) > 5 {
		return ""
	}
	slices.Sort(candidates)
	return fmt.Sprintf(": there is `%s`", strings.Join(candidates, "`, `"))
}

func (d *Domain) why(entries []Entry) string {
	n := &d.root
	for i := range entries {
		next := n.child(&entries[i])
		if next == nil {
			return d.whyNot(n, entries[i], i)
		}
		n = next
	}
	switch {
	case len(entries) == 0:
		return "an empty descriptor has no limit"
	case len(n.children) > 0:
		return fmt.Sprintf("the rules go on below it with `%s`; a descriptor must be as deep as its rule",
			strings.Join(slices.Sorted(maps.Keys(n.children)), "`, `"))
	}
	return "the descriptor is known, and has no rate_limit"
}

// whyNot says why e, entry i, leads nowhere from n.
func (d *Domain) whyNot(n *node, e Entry, i int) string {
	if b := n.children[e.Key]; b != nil {
		var values []string
		for v := range maps.Keys(b.exact) {
			if values = append(values, v); len(values) > maxCandidates {
				break
			}
		}
		values = slices.AppendSeq(values, maps.Keys(b.listed))
		for _, w := range b.wildcards {
			values = append(values, w.text)
		}
		return fmt.Sprintf("`%s` has no rule for this value%s", e.Key, mean(e.Value, values))
	}
	if len(n.children) == 0 {
		return fmt.Sprintf("the rules end after entry %d; a descriptor must be as deep as its rule", i)
	}
	keys := slices.Collect(maps.Keys(n.children))
	if c, ok := nearest(e.Key, keys); ok {
		return fmt.Sprintf("did you mean `%s`?", c)
	}
	if path := d.root.find(e.Key, d.Name); path != "" {
		return fmt.Sprintf("`%s` stands below %s", e.Key, path)
	}
	return fmt.Sprintf("no key `%s` at entry %d%s", e.Key, i+1, mean(e.Key, keys))
}

// find returns the path of the first place, in order of keys, that has key as a child, or "".
func (n *node) find(key, path string) string {
	if n.children[key] != nil {
		return path
	}
	for _, k := range slices.Sorted(maps.Keys(n.children)) {
		b := n.children[k]
		if b.any != nil {
			if p := b.any.find(key, join(path, k)); p != "" {
				return p
			}
		}
		for _, v := range slices.Sorted(maps.Keys(b.exact)) {
			if p := b.exact[v].find(key, join(path, ruleName(k, v))); p != "" {
				return p
			}
		}
		for _, w := range b.wildcards {
			if p := w.find(key, join(path, ruleName(k, w.text))); p != "" {
				return p
			}
		}
	}
	return ""
}
