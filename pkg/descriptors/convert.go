package descriptors

import (
	"bytes"
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// ToReplaced writes rules in the grammar of envoyproxy/ratelimit: a file for each that has rules, under its name, that
// comes as near as can be to what the rules do under o. What is lost is a Warning, and a comment in the file. The same
// files give the same bytes. Of files with an Error it returns the problems, and nothing else.
func ToReplaced(files []File, o Options) ([]File, []Problem) {
	if _, problems := Compile(files, o); HasErrors(problems) {
		return nil, problems
	}
	defaults := gather(files, o)
	domains := map[string]*oldNames{}
	var converters []*converter
	for _, f := range files {
		c := &converter{reader: reader{file: f.Name, size: len(f.Data), asSent: true}, fileOrder: o.FileOrder, source: f}
		if c.spec = c.read(f.Data, defaults); c.spec != nil {
			c.problems = nil // they are those of Compile
			c.convert(domains)
			converters = append(converters, c)
		}
	}
	for _, names := range domains {
		names.complete()
	}
	var converted []File
	var lost []Problem
	for _, c := range converters {
		if c.spec.domains == nil {
			converted = append(converted, File{Name: c.file, Data: c.bytes()})
		}
		for i := range c.problems {
			c.problems[i].within(c.source)
		}
		sortByPlace(c.problems)
		lost = append(lost, slices.Compact(c.problems)...) // each value of a list may have told the same
	}
	if HasErrors(lost) {
		return nil, lost
	}
	return converted, lost
}

// convert converts the descriptors of the file, and adds the names of its limits to those of its domain.
func (c *converter) convert(domains map[string]*oldNames) {
	if c.spec.domains != nil {
		c.lose(&c.top, c.spec.domainsAt, "domains", "no file comes of it: its defaults are in the rules that are converted with it, and lost for those of a control plane")
		return
	}
	if c.names = domains[c.spec.domain]; c.names != nil {
		c.lose(&c.top, c.spec.at, "domain", "the domain is in another file, too: the replaced service needs MERGE_DOMAIN_CONFIG=true, and tries the wildcards of files in any order")
	} else {
		c.names = &oldNames{}
		domains[c.spec.domain] = c.names
	}
	if c.children = c.siblings(c.spec.children); size(c.children) > maxConverted {
		c.errorf(c.spec.at, "domain", "its lists of values and networks come to more than %d descriptors, one in the other", maxConverted)
		c.children = nil
	}
}

// converter writes one file.
type converter struct {
	reader
	source    File
	fileOrder bool
	spec      *spec
	names     *oldNames
	children  []*old
	top       []string // what is lost of the file as a whole
}

// old is a descriptor in the replaced service's grammar.
type old struct {
	*descriptorSpec
	value string
	rank  int // by which it is matched: whole values, networks, stars, the key alone
	bits  int // of a network
	share bool
	limit *oldLimit
	lost  []string
	below []*old
	size  int // its own and below, up to maxConverted
}

type oldLimit struct {
	window
	name      string
	unlimited bool
	shadow    bool
	exempt    bool // replaces all of the domain
	replaces  []string
}

// The ranks of old.
const (
	rankExact = iota
	rankListed
	rankNetwork
	rankStars
	rankAny
)

// maxConverted bounds the descriptors of a file.
const maxConverted = 1 << 20

// size is how many descriptors there are, if not too many.
func size(list []*old) int {
	n := 0
	for _, o := range list {
		n = min(n+o.size, maxConverted+1)
	}
	return n
}

// oldNames are the names of a domain's limits, by which what is exempt replaces them.
type oldNames struct {
	list    []string
	exempts bool
	missing bool   // there are limits without a name,
	unnamed string // and this is what they get, if something is exempt
}

// add adds the name of a limit.
func (n *oldNames) add(name string) {
	if name == "" {
		n.missing = true
	} else {
		n.list = append(n.list, name)
	}
}

// complete sorts the names, once all are there, and chooses one for limits that have none.
func (n *oldNames) complete() {
	slices.Sort(n.list)
	n.list = slices.Compact(n.list)
	if !n.missing || !n.exempts {
		return
	}
	n.unnamed = "unnamed"
	for slices.Contains(n.list, n.unnamed) {
		n.unnamed += "_"
	}
	n.list = append(n.list, n.unnamed)
}

// lose notes what is lost at a place, for the one who converts and for the file.
func (c *converter) lose(to *[]string, n *yaml.Node, path, text string) {
	*to = append(*to, text)
	c.report(Warning, n, path, text)
}

// siblings converts the descriptors of one place.
func (c *converter) siblings(specs []*descriptorSpec) []*old {
	var list []*old
	for _, s := range specs {
		list = append(list, c.descriptor(s)...)
	}
	list = c.distinct(list)
	c.order(list)
	texts := make([]oldText, len(list))
	for i, o := range list {
		texts[i] = oldText{o.key, o.value, o.path}
	}
	doubtJoined(texts, func(i int, text string) { c.lose(&list[i].lost, list[i].at, list[i].path, text) })
	return list
}

// distinct leaves out what would be one with another: the replaced service compares key and value as one text.
func (c *converter) distinct(list []*old) []*old {
	best := map[string]*old{}
	for _, o := range list {
		id := ruleName(o.key, o.value)
		other := best[id]
		if other == nil || other.key == o.key && (o.rank < other.rank || o.rank == other.rank && o.bits > other.bits) {
			best[id] = o
			continue
		}
		if other.key != o.key {
			c.lose(&other.lost, o.at, o.path,
				fmt.Sprintf("left out: to the replaced service it is the same as %s", other.path))
		}
	}
	return slices.DeleteFunc(list, func(o *old) bool { return best[ruleName(o.key, o.value)] != o })
}

// order puts what has stars in the order in which it is tried, since the replaced service takes the first.
func (c *converter) order(list []*old) {
	var places []int
	var stars []*old
	for i, o := range list {
		if o.rank == rankNetwork || o.rank == rankStars {
			places, stars = append(places, i), append(stars, o)
		}
	}
	slices.SortStableFunc(stars, func(a, b *old) int {
		switch {
		case a.rank != b.rank:
			return a.rank - b.rank
		case a.rank == rankNetwork:
			return b.bits - a.bits
		case c.fileOrder:
			return 0
		}
		return compareWildcards(newWildcard(a.value), newWildcard(b.value))
	})
	for i, place := range places {
		list[place] = stars[i]
	}
}

// descriptor converts one descriptor to one for each of its values or networks.
func (c *converter) descriptor(s *descriptorSpec) []*old {
	first := &old{descriptorSpec: s, value: s.value, share: s.share, rank: rankExact}
	switch {
	case s.value == "":
		first.rank = rankAny
	case strings.Contains(s.value, "*"):
		first.rank = rankStars
	}
	c.limitOf(first)
	first.below = c.siblings(s.children)
	first.size = 1 + size(first.below)
	switch {
	case len(s.values) > 0:
		return c.each(first, s.values)
	case len(s.cidrs) > 0:
		return c.networks(first)
	}
	return []*old{first}
}

// each is a copy of o for each of some values.
func (c *converter) each(o *old, values []string) []*old {
	if o.share && len(values) > 1 {
		c.lose(&o.lost, o.at, o.path,
			fmt.Sprintf("%d values have shared a counter, and each gets one: up to %d times as many pass", len(values), len(values)))
	}
	list := make([]*old, len(values))
	for i, v := range values {
		one := *o
		one.value, one.rank, one.share = v, rankListed, false
		if i > 0 {
			one.lost = nil
		}
		list[i] = &one
	}
	return list
}

// networks is a copy of o for each text that addresses of its networks begin with.
func (c *converter) networks(o *old) []*old {
	var list []*old
	var without []string
	for _, n := range o.cidrs {
		texts := networkTexts(n)
		if len(texts) == 0 {
			without = append(without, n.String())
		}
		for _, text := range texts {
			one := *o
			one.value, one.rank, one.bits = text, rankNetwork, n.Bits()
			one.share = o.share && strings.Contains(text, "*")
			one.lost = nil
			list = append(list, &one)
		}
	}
	var lost []string
	if len(without) > 0 {
		c.lose(&lost, o.at, o.path,
			fmt.Sprintf("addresses of %s are not told apart from others", strings.Join(without, ", ")))
	}
	if len(list) > 0 && !slices.Contains(trusted, o.key) {
		c.lose(&lost, o.at, o.path, "addresses are compared as texts: what begins like one and is none, as a client may send it, matches, too")
	}
	if o.share && len(list) > 1 {
		c.lose(&lost, o.at, o.path,
			fmt.Sprintf("the networks have shared a counter, and become %d texts with one each: up to %d times as many pass", len(list), len(list)))
	}
	if len(list) == 0 {
		c.top = append(c.top, fmt.Sprintf("%s: %s", o.path, strings.Join(lost, "; ")))
		return nil
	}
	list[0].lost = append(slices.Clone(o.lost), lost...)
	return list
}

// networkTexts are what the addresses of a network look like, with stars; none of an IPv6 network, whose addresses have
// no text in common.
func networkTexts(n netip.Prefix) []string {
	if n.IsSingleIP() {
		return []string{n.Addr().String()}
	}
	if !n.Addr().Is4() {
		return nil
	}
	octets, whole := n.Addr().As4(), n.Bits()/8
	start := ""
	for _, o := range octets[:whole] {
		start += fmt.Sprintf("%d.", o)
	}
	switch {
	case whole == 0 && n.Bits() == 0:
		return []string{"*.*.*.*"}
	case n.Bits()%8 == 0:
		return []string{start + "*"}
	}
	var texts []string
	for i := range 1 << (8 - n.Bits()%8) {
		text := fmt.Sprintf("%s%d", start, int(octets[whole])+i)
		if whole < 3 {
			text += ".*"
		}
		texts = append(texts, text)
	}
	return texts
}

// limitOf chooses and converts the limit of a descriptor.
func (c *converter) limitOf(o *old) {
	s := o.descriptorSpec
	switch {
	case s.exempt:
		o.limit = &oldLimit{unlimited: true, exempt: true}
		c.names.exempts = true
		return
	case len(s.limits) == 0:
		return
	}
	limits := make([]Limit, len(s.limits))
	for i, l := range s.limits {
		limits[i] = Limit{Limit: l.limit, Name: l.name, Unit: l.unit, Multiplier: l.multiplier, Shadow: l.shadow}
	}
	kept := keep(limits)
	l := s.limits[kept]
	o.limit = &oldLimit{name: l.name, unlimited: l.unlimited, shadow: l.shadow}
	if !l.unlimited {
		o.limit.window = nearestWindow(&l.limit)
		c.names.add(l.name)
		if text := o.limit.difference(&limits[kept]); text != "" {
			c.lose(&o.lost, l.at, s.path, text)
		}
	}
	for i, other := range s.limits {
		for _, name := range other.replaces {
			if name != l.name {
				o.limit.replaces = append(o.limit.replaces, name)
			}
		}
		if i != kept {
			c.lose(&o.lost, other.at, s.path, o.limit.without(&limits[i]))
		}
	}
	c.policies(o)
}

// without says what the loss of another limit of the list means.
func (w window) without(l *Limit) string {
	if l.Shadow {
		return fmt.Sprintf("%s, which was tried out, is left out", l.Words())
	}
	return fmt.Sprintf("%s is left out: %d per %s lets %d pass in that time", l.Words(), w.requests, w.unit, w.lets(l.Period))
}

// policies notes what a descriptor asks for beside its limit, in vain.
func (c *converter) policies(o *old) {
	for _, f := range o.policyAt {
		if f.key.Value == "max_values" && o.maxValues > 0 {
			c.lose(&o.lost, f.key, join(o.path, "max_values"),
				fmt.Sprintf("any number of values gets counters, not %d: a client that makes them up can fill Redis", o.maxValues))
		}
	}
}

// fileLosses notes what is lost of the file as a whole.
func (c *converter) fileLosses() {
	s, free, failures := c.spec, 0, []string{}
	var walk func([]*descriptorSpec)
	walk = func(specs []*descriptorSpec) {
		for _, d := range specs {
			if len(d.limits) > 0 && !d.limits[0].unlimited {
				if !d.countDenied {
					free++
				}
				if d.onFailure != limiter.FailError && !slices.Contains(failures, d.onFailure.String()) {
					failures = append(failures, d.onFailure.String())
				}
			}
			walk(d.children)
		}
	}
	walk(s.children)
	if free > 0 {
		c.lose(&c.top, s.at, "count_denied",
			fmt.Sprintf("refused requests cost, which they did not for %s: a client that goes on stays out, and a request that one limit refuses is counted on its others", plural(free, "descriptor")))
	}
	if slices.Sort(failures); len(failures) > 0 {
		c.lose(&c.top, s.at, "on_store_failure",
			fmt.Sprintf("when Redis fails, calls end in an error and failure_mode_deny of Envoy's filter decides, rather than %s", strings.Join(failures, ", ")))
	}
	for _, key := range sortedKeys(c.keys) {
		c.lose(&c.top, cmp.Or(s.keysAt, s.at), "keys."+key,
			fmt.Sprintf("values of %s are compared and counted as they are sent: %s", key, c.keys[key].lost()))
	}
	if c.names.unnamed != "" {
		c.lose(&c.top, s.at, "exempt",
			fmt.Sprintf("limits without a name get the name %q, by which exempt descriptors replace them, and which clients may be told", c.names.unnamed))
	}
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// lost says what it means that values are not prepared.
func (p *preparation) lost() string {
	var words []string
	if p.stripQuery {
		words = append(words, "a path with a query is another value, with a counter of its own")
	}
	if p.lowercase {
		words = append(words, "each spelling is another value, with a counter of its own")
	}
	if p.mask {
		words = append(words, "each address has a counter of its own, of which a client on IPv6 has 2^64")
	}
	if p.hash {
		words = append(words, "they stand in the names of Redis' keys")
	}
	return strings.Join(words, "; ")
}

// bytes is the file.
func (c *converter) bytes() []byte {
	c.fileLosses()
	var b bytes.Buffer
	fmt.Fprintf(&b, "# For envoyproxy/ratelimit, made of %s by envoy-rls convert.\n", commented(c.file))
	for _, text := range c.top {
		fmt.Fprintf(&b, "# Lost: %s.\n", commented(text))
	}
	root := mapping(nil, "domain", quoted(c.spec.domain))
	if len(c.children) > 0 {
		root = mapping(root, "descriptors", c.list(c.children))
	}
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	_ = e.Encode(root) // into memory, of nodes made here
	_ = e.Close()
	return b.Bytes()
}
