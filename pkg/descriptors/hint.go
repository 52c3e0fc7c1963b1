package descriptors

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"unicode"
)

// Unmatched says in words why no limit applies to a descriptor for which Match finds no rule, with the
// nearest thing that its author may have meant. The entries are prepared.
func (rs *Ruleset) Unmatched(domain string, entries []Entry) string {
	d := rs.domains[domain]
	if d == nil {
		return fmt.Sprintf("no rules for domain %s%s", domain, mean(domain, slices.Collect(maps.Keys(rs.domains))))
	}
	return fmt.Sprintf("no rule matches %s in domain %s: %s", entriesText(entries), domain, d.why(entries, entries))
}

// Why is what Unmatched says, without the domain, the entries and any value of them: only keys are told, and what
// is nearest in the rules. It is "" if a rule matches.
func (rs *Ruleset) Why(domain string, entries []Entry) string {
	d := rs.domains[domain]
	switch {
	case d == nil:
		return "no rules for this domain" + mean(domain, slices.Collect(maps.Keys(rs.domains)))
	case d.Match(entries) != nil:
		return ""
	}
	return d.why(entries, entries)
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
	slices.Sort(candidates)
	if c, ok := Nearest(word, candidates); ok {
		return ": " + didYouMean(word, c)
	}
	if len(candidates) == 0 || len(candidates) > 5 {
		return ""
	}
	return fmt.Sprintf(": there is `%s`", strings.Join(candidates, "`, `"))
}

func didYouMean(word, meant string) string {
	if strings.EqualFold(word, meant) {
		return fmt.Sprintf("did you mean `%s`? It differs in case", meant)
	}
	return fmt.Sprintf("did you mean `%s`?", meant)
}

// plain is a client's text, such as can stand on a line: short, and without what can't be printed.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, strings.ToValidUTF8(abbreviate(text), "?"))
}

// stray is a descriptor that no rule matches.
type stray struct {
	domain        *Domain
	sent, entries []Entry // as they came, and prepared
	trail         []*node // the root, and where each entry led, until one led nowhere
}

// why says why no rule of d matches a descriptor, in words that hold none of its values.
func (d *Domain) why(sent, entries []Entry) string {
	s := &stray{domain: d, sent: sent, entries: entries, trail: []*node{&d.root}}
	for i := range entries {
		next := s.end().child(&entries[i])
		if next == nil {
			return s.whyNot()
		}
		s.trail = append(s.trail, next)
	}
	switch n := s.end(); {
	case len(entries) == 0:
		return "an empty descriptor has no limit; Envoy sends one if skip_if_absent leaves out all of its entries"
	case len(n.children) > 0:
		return fmt.Sprintf("the rules go on below it with `%s`; a descriptor must be as deep as its rule",
			strings.Join(slices.Sorted(maps.Keys(n.children)), "`, `"))
	}
	return "the descriptor is known, and has no rate_limit"
}

// end is the last place that an entry led to.
func (s *stray) end() *node { return s.trail[len(s.trail)-1] }

// at is the number of the entry that leads nowhere.
func (s *stray) at() int { return len(s.trail) - 1 }

// whyNot says why the entry that leads nowhere doesn't.
func (s *stray) whyNot() string {
	i, n := s.at(), s.end()
	key := s.entries[i].Key
	if n.children[key] != nil {
		return fmt.Sprintf("`%s` has no rule for this value%s", plain(key), s.valueHint())
	}
	keys := slices.Sorted(maps.Keys(n.children))
	for _, hint := range []string{s.noWayBack(), s.reordered(), s.misspelt(keys), s.levelsUp()} {
		if hint != "" {
			return hint
		}
	}
	if len(keys) == 0 {
		return fmt.Sprintf("the rules end after entry %d; a descriptor must be as deep as its rule%s", i, s.oneTooMany())
	}
	looked := 0
	if path := s.domain.root.find(key, s.domain.Name, &looked); path != "" {
		return fmt.Sprintf("`%s` stands below %s", plain(key), path)
	}
	why := fmt.Sprintf("no key `%s` at entry %d%s", plain(key), i+1, mean(key, keys))
	if slices.Contains(envoysNames, key) {
		why += "; Envoy calls an entry so unless its action has a descriptor_key"
	}
	return why + s.oneTooMany()
}

// envoysNames are the keys of Envoy's actions that name none.
var envoysNames = []string{
	"generic_key", "header_match", "query_match", "remote_address", "masked_remote_address", "remote_address_match",
	"source_cluster", "destination_cluster",
}

func (s *stray) misspelt(keys []string) string {
	key := s.entries[s.at()].Key
	if c, ok := Nearest(key, keys); ok {
		return didYouMean(key, c)
	}
	return ""
}

// levelsUp: the rules have the key beside an entry before this one, so that it wants a descriptor of its own.
func (s *stray) levelsUp() string {
	i := s.at()
	for up := 1; up <= i; up++ {
		before := s.entries[i-up].Key
		if before == s.entries[i].Key || s.trail[i-up].children[s.entries[i].Key] == nil {
			continue
		}
		far := "one level up"
		if up > 1 {
			far = fmt.Sprintf("%d levels up", up)
		}
		return fmt.Sprintf("`%s` exists %s, beside `%s`: send it in a descriptor of its own", plain(s.entries[i].Key), far, plain(before))
	}
	return ""
}

// oneTooMany: a rule would match if the entry that leads nowhere weren't there.
func (s *stray) oneTooMany() string {
	i := s.at()
	rest := slices.Concat(s.entries[:i], s.entries[i+1:])
	if r := s.domain.Match(rest); r != nil {
		return fmt.Sprintf("; without `%s` it matches %s", plain(s.entries[i].Key), r.Path)
	}
	return ""
}

// Bounds of searches over other ways through the rules: the entries that are put in another order, and the places
// that are looked at.
const (
	maxReordered = 6
	maxLooked    = 2000
)

// reordered: a rule would match the same entries in another order.
func (s *stray) reordered() string {
	if len(s.entries) > maxReordered {
		return ""
	}
	var order []string
	r := s.inSomeOrder(&s.domain.root, s.entries, &order)
	if r == nil {
		return ""
	}
	slices.Reverse(order)
	return fmt.Sprintf("in the order `%s` it matches %s", strings.Join(order, "`, `"), r.Path)
}

// inSomeOrder is the rule that entries lead to from n in some order, which it appends from the end.
func (s *stray) inSomeOrder(n *node, entries []Entry, order *[]string) *Rule {
	if len(entries) == 0 {
		return n.rule
	}
	for i := range entries {
		next := n.child(&entries[i])
		if next == nil {
			continue
		}
		if r := s.inSomeOrder(next, slices.Concat(entries[:i], entries[i+1:]), order); r != nil {
			*order = append(*order, plain(entries[i].Key))
			return r
		}
	}
	return nil
}

// noWayBack: a rule would match but for a closer one before it, which hides it.
func (s *stray) noWayBack() string {
	looked := 0
	r, i := s.hidden(&s.domain.root, 0, &looked)
	if r == nil {
		return ""
	}
	return fmt.Sprintf("%s would match, and %s, which matches `%s` more closely, hides it: there is no way back; repeat `%s` there",
		r.Path, s.trail[i+1].origin.path, plain(s.entries[i].Key), plain(s.entries[s.at()].Key))
}

// hidden is the first rule that entries from number i on lead to from n if less close matches count as well, and the
// number of the first entry that they count for.
func (s *stray) hidden(n *node, i int, looked *int) (rule *Rule, from int) {
	if *looked++; i == len(s.entries) {
		return n.rule, i
	}
	if *looked > maxLooked {
		return nil, 0
	}
	best := n.child(&s.entries[i])
	for _, next := range n.children[s.entries[i].Key].matching(s.entries[i].Value) {
		rule, from := s.hidden(next, i+1, looked)
		switch {
		case rule == nil:
		case next != best:
			return rule, i
		default:
			return rule, from
		}
	}
	return nil, 0
}

// matching are all places of b that match a value, the closest first.
func (b *branch) matching(value string) []*node {
	if b == nil {
		return nil
	}
	list := []*node{b.exact[value], b.listed[value]}
	if addr, ok := address(value); ok {
		for i := range b.networks {
			if b.networks[i].Contains(addr) {
				list = append(list, b.networks[i].node)
			}
		}
	}
	for i := range b.wildcards {
		if b.wildcards[i].matches(value) {
			list = append(list, b.wildcards[i].node)
		}
	}
	return slices.DeleteFunc(append(list, b.any), func(n *node) bool { return n == nil })
}

// variations are what a request's values often differ by from those of rules.
var variations = []struct {
	words, mend string
	of          func(string) string
}{
	{"without its query", "keys: {%s: {strip_query: true}} cuts that off", func(v string) string { v, _, _ = strings.Cut(v, "?"); return v }},
	{"without its port", "list both in values", func(v string) string {
		if host, _, err := net.SplitHostPort(v); err == nil {
			return host
		}
		return v
	}},
	{"without the slash at its end", "list both in values", func(v string) string { return strings.TrimSuffix(v, "/") }},
	{"with a slash at its end", "list both in values", func(v string) string { return v + "/" }},
	{"without the spaces around it", "list both in values", strings.TrimSpace},
}

// valueHint says what is nearest to the value of the entry that leads nowhere.
func (s *stray) valueHint() string {
	i, n := s.at(), s.end()
	e := s.entries[i]
	b, p := n.children[e.Key], s.domain.keys[e.Key]
	if sent := s.sent[i]; sent.Value != e.Value {
		if m := n.child(&sent); m != nil {
			return fmt.Sprintf(": as it was sent it would match %s, and is prepared before (keys: %s)", m.origin.path, p.words())
		}
	}
	if p != nil && p.hash {
		return ": values of it are hashed (keys), and only equal ones have equal hashes"
	}
	for _, v := range variations {
		if m := n.child(&Entry{e.Key, v.of(e.Value)}); m != nil {
			mend := strings.ReplaceAll(v.mend, "%s", plain(e.Key))
			return fmt.Sprintf(": %s it would match %s; %s", v.words, m.origin.path, mend)
		}
	}
	if text := b.folded(e.Value); text != "" {
		return fmt.Sprintf(": it differs in case from `%s`; keys: {%s: {lowercase: true}} evens that out", text, plain(e.Key))
	}
	if text := b.asNetwork(e.Value); text != "" {
		return fmt.Sprintf(": it is in `%s`, which is a network in cidrs only, and plain text in value", text)
	}
	if text := b.nearWildcard(e.Value); text != "" {
		return fmt.Sprintf(": it nearly matches `%s`", text)
	}
	return mean(e.Value, b.texts())
}

// texts are the values of b's places, as far as there are not too many.
func (b *branch) texts() []string {
	var texts []string
	for v := range b.exact {
		if texts = append(texts, v); len(texts) > maxCandidates {
			break
		}
	}
	texts = slices.AppendSeq(texts, maps.Keys(b.listed))
	for i := range b.wildcards {
		texts = append(texts, b.wildcards[i].text)
	}
	return texts
}

// folded is the text of b that matches a value but for case, or "".
func (b *branch) folded(value string) string {
	value = strings.ToLower(value)
	for _, text := range b.texts() {
		if w := newWildcard(strings.ToLower(text)); w.matches(value) {
			return text
		}
	}
	return ""
}

// asNetwork is the text of b that is a network which a value's address is in, or "".
func (b *branch) asNetwork(value string) string {
	addr, ok := address(value)
	if !ok {
		return ""
	}
	for _, text := range b.texts() {
		if network, err := netip.ParsePrefix(text); err == nil && network.Contains(addr) {
			return text
		}
	}
	return ""
}

// nearWildcard is the wildcard of b whose beginning a value begins with but for a letter or two, or "".
func (b *branch) nearWildcard(value string) string {
	for i := range b.wildcards {
		w := &b.wildcards[i]
		if n := len(w.prefix); n >= 4 && len(value) >= n && editDistance(value[:n], w.prefix) <= n/4 {
			return w.text
		}
	}
	return ""
}

// find returns the path of the first place that has key as a child, or "" if there is none among those looked at.
func (n *node) find(key, path string, looked *int) string {
	if *looked++; n.children[key] != nil {
		return path
	}
	if *looked > maxLooked {
		return ""
	}
	for _, k := range slices.Sorted(maps.Keys(n.children)) {
		for _, child := range n.children[k].places() {
			if p := child.find(key, child.origin.path, looked); p != "" {
				return p
			}
		}
	}
	return ""
}

// places are the places of b, each once: the one for any value first, then in the order of the rules' files. Of very
// many they are some.
func (b *branch) places() []*node {
	var list []*node
	for _, values := range []map[string]*node{b.exact, b.listed} {
		for _, n := range values {
			if list = append(list, n); len(list) > maxCandidates {
				break
			}
		}
	}
	for i := range b.networks {
		list = append(list, b.networks[i].node)
	}
	for i := range b.wildcards {
		list = append(list, b.wildcards[i].node)
	}
	slices.SortFunc(list, func(x, y *node) int {
		return cmp.Or(cmp.Compare(x.origin.file, y.origin.file), cmp.Compare(x.origin.line, y.origin.line), cmp.Compare(x.origin.path, y.origin.path))
	})
	list = slices.Compact(list)
	if b.any != nil {
		list = slices.Insert(list, 0, b.any)
	}
	return list
}
