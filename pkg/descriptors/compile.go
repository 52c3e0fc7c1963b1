package descriptors

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// Options are the settings that rules are compiled by.
type Options struct {
	Defaults Defaults
	// FileOrder makes the first wildcard of a file win that matches, rather than the most specific one.
	FileOrder bool
	// StopTogether makes a denied request charge the hits that were denied, and no other. It is
	// STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT of the service that this one replaces.
	StopTogether bool
	// Merge lets several files have rules for one domain, in the order of the files. What stands at the top of
	// two files, of the same key and value, is an Error.
	Merge bool
	// ForReplaced makes everything an Error that envoyproxy/ratelimit would refuse a file for, and a Warning what it would
	// take otherwise.
	ForReplaced bool
	// ReplacedNames has limits counted under the names that envoyproxy/ratelimit gives their counters, as Counter's
	// AppendReplacedName makes them: of each rule the first that is a fixed window of one unit. Rules whose names are the
	// same get a Warning.
	ReplacedNames bool
	// HashKey is what values are hashed by where rules want them hashed; nil is SHA-256 alone.
	HashKey *HashKey
}

// Compile compiles files to a Ruleset and everything that is wrong with them. A file with an Error is left out,
// and the others are used: of two files with one domain, the first.
func Compile(files []File, o Options) (*Ruleset, []Problem) {
	rs := &Ruleset{domains: map[string]*Domain{}, Hash: hashOf(files, o)}
	var problems []Problem
	defaults := gather(files, o)
	for _, f := range files {
		d, ps := compileFile(f, o, defaults)
		if d != nil {
			ps = append(ps, rs.add(d, o)...)
		}
		problems = append(problems, ps...)
	}
	for _, d := range rs.domains {
		for _, r := range d.rules {
			rs.Limits += len(r.Limits)
		}
	}
	return rs, problems
}

// gather reads the defaults of files without rules.
func gather(files []File, o Options) defaultsOf {
	defaults := defaultsOf{settings: o.Defaults}
	for _, f := range files {
		if bytes.Contains(f.Data, []byte("domains")) {
			r := reader{file: f.Name, size: len(f.Data), hashKey: o.HashKey}
			if s := r.read(f.Data, defaultsOf{}); s != nil {
				defaults.add(s)
			}
		}
	}
	return defaults
}

// add adds a file's domain, or says why it can't be added.
func (rs *Ruleset) add(d *Domain, o Options) []Problem {
	first := rs.domains[d.Name]
	if first == nil {
		rs.domains[d.Name] = d
		return nil
	}
	conflict, again := "put both into one file, or merge domains", d.at
	if o.Merge {
		unordered := first.unordered(d)
		if conflict = first.merge(d, o.FileOrder); conflict == "" {
			if unordered == "" || !o.ForReplaced {
				return nil
			}
			again.Severity, again.Path = Warning, join(d.Name, unordered)
			again.Text = fmt.Sprintf("%s has wildcards for it, too, and the replaced service tries files in any order; put them into one", first.at.File)
			return []Problem{again}
		}
	}
	again.Text = fmt.Sprintf("domain %q is already at %s; %s", d.Name, first.at.place(), conflict)
	return []Problem{again}
}

// hashOf is the same whatever the order of the files.
func hashOf(files []File, o Options) string {
	hash := sha256.New()
	fmt.Fprintf(hash, "%+v\n", o)
	for _, f := range slices.SortedFunc(slices.Values(files), func(a, b File) int { return cmp.Compare(a.Name, b.Name) }) {
		fmt.Fprintf(hash, "%s %d\n%s", f.Name, len(f.Data), f.Data)
	}
	return hex.EncodeToString(hash.Sum(nil)[:4])
}

// compileFile compiles one file. It returns no Domain if the file has an Error.
func compileFile(f File, o Options, defaults defaultsOf) (*Domain, []Problem) {
	if f.Unread != nil {
		return nil, []Problem{{File: f.Name, Text: "it can't be read: " + f.Unread.Error()}}
	}
	c := compiler{
		reader:  reader{file: f.Name, size: len(f.Data), replaced: o.ForReplaced, generated: f.Generated, hashKey: o.HashKey},
		options: o, source: f,
	}
	s := c.read(f.Data, defaults)
	if s != nil && len(s.domains) == 0 {
		at := Problem{File: f.Name, Line: s.at.Line, Column: s.at.Column, Path: "domain"}
		at.within(f)
		c.domain = &Domain{Name: s.domain, at: at, partition: s.partition, keys: c.keys}
		c.children(&c.domain.root, s.children, trail{})
		c.checkReplaces()
		for _, r := range c.domain.rules {
			r.at.within(f)
		}
		c.doubtNames()
	}
	for i := range c.problems {
		c.problems[i].within(f)
	}
	sortByPlace(c.problems)
	if HasErrors(c.problems) {
		return nil, c.problems
	}
	return c.domain, c.problems
}

// within moves p to where it is in the file that f is a part of, or to no line if nobody can see those of f.
func (p *Problem) within(f File) {
	if f.Generated {
		p.Line, p.Column = 0, 0
	}
	if f.line > 0 && p.Line > 0 {
		p.File, p.Line, p.Column = f.shown, p.Line+f.line, p.Column+f.column
	}
}

// compiler turns what a reader has read into a Domain.
type compiler struct {
	reader
	options Options
	source  File
	domain  *Domain
	limits  []pathLimit
	named   []namedRule
}

// pathLimit is a limit and its rule's path.
type pathLimit struct {
	*limitSpec
	path string
}

// trail is the way to a descriptor.
type trail struct {
	patterns []string // by level, the pattern that stands in for the value in counter names, or ""
	each     []string // the keys whose values are counted apart
	levels   []level
}

func (t trail) to(s *descriptorSpec) trail {
	pattern, each := "", t.each
	switch {
	case s.share:
		pattern = s.matched()
	case s.value == "" || s.several():
		each = append(slices.Clip(each), s.key)
	}
	l := level{key: s.key, value: s.matched(), several: s.several(), perValue: s.valueMetric, shared: s.share}
	return trail{append(slices.Clip(t.patterns), pattern), each, append(slices.Clip(t.levels), l)}
}

// children builds the subtree below n, which is at the end of the trail.
func (c *compiler) children(n *node, specs []*descriptorSpec, t trail) {
	if c.generated {
		specs = c.mergeSame(specs)
	}
	seen := map[Entry]*yaml.Node{}
	for _, s := range specs {
		id := Entry{s.key, s.matched()}
		if c.replaced {
			id = Entry{Key: ruleName(s.key, s.matched())} // it compares them as one text
		}
		if first := seen[id]; first != nil {
			c.errorf(s.at, s.path, "the same key and value as at %d:%d; make one of the two", first.Line, first.Column)
			continue
		}
		seen[id] = s.at
		child := &node{origin: c.origin(s)}
		if other := n.add(s, child); other != "" {
			c.errorf(s.at, s.path, "%s is in another list of values, too; it can be in one", other)
		}
		child.rule = c.rule(s, t.to(s))
		c.children(child, s.children, t.to(s))
	}
	c.doubts(specs)
	for _, b := range n.children {
		b.sort(c.options.FileOrder)
	}
}

// origin is where s stands for those who look for it.
func (c *compiler) origin(s *descriptorSpec) origin {
	at := Problem{File: c.file, Line: s.at.Line, Column: s.at.Column}
	at.within(c.source)
	return origin{s.path, at.File, at.Line}
}

// sort puts places that are tried in turn in order.
func (b *branch) sort(fileOrder bool) {
	slices.SortStableFunc(b.networks, func(x, y networkNode) int { return cmp.Compare(y.Bits(), x.Bits()) })
	if fileOrder {
		return
	}
	slices.SortStableFunc(b.wildcards, func(x, y wildcardNode) int {
		return compareWildcards(x.wildcard, y.wildcard)
	})
}

// add makes child the place for what s matches. It returns a value that another list of values has already.
func (n *node) add(s *descriptorSpec, child *node) (taken string) {
	if n.children == nil {
		n.children = map[string]*branch{}
	}
	b := n.children[s.key]
	if b == nil {
		b = &branch{exact: map[string]*node{}, listed: map[string]*node{}}
		n.children[s.key] = b
	}
	switch {
	case len(s.values) > 0:
		for _, v := range s.values {
			if b.listed[v] != nil {
				taken = v
			}
			b.listed[v] = child
		}
	case len(s.cidrs) > 0:
		for _, network := range s.cidrs {
			b.networks = append(b.networks, networkNode{network, child})
		}
	case s.value == "":
		b.any = child
	case s.wild():
		b.wildcards = append(b.wildcards, wildcardNode{newWildcard(s.value), child})
	default:
		b.exact[s.value] = child
	}
	return taken
}

// rule is the rule of s, or nil if it has no limit.
func (c *compiler) rule(s *descriptorSpec, t trail) *Rule {
	if len(s.limits) == 0 && !s.exempt {
		for _, f := range s.policyAt {
			c.report(Warning, f.key, join(s.path, f.key.Value), "no effect without a rate_limit beside it")
		}
		return nil
	}
	r := &Rule{
		Domain:    c.domain.Name,
		Path:      s.path,
		Role:      s.role(),
		Charge:    c.charge(s),
		OnFailure: s.onFailure,
		Metadata:  s.metadata,
		Exempt:    s.exempt,
	}
	r.at = Problem{File: c.file, Line: s.at.Line, Column: s.at.Column, Path: s.path}
	r.Each, r.levels, r.detailed = t.each, t.levels, s.detailed
	r.perValue = s.detailed || slices.ContainsFunc(t.levels, func(l level) bool { return l.perValue })
	if slices.ContainsFunc(t.patterns, func(p string) bool { return p != "" }) {
		r.patterns = t.patterns
	}
	for _, l := range s.limits {
		c.addLimit(r, l, len(s.limits) > 1)
	}
	if len(r.Each) > 0 && len(r.Limits) > 0 && s.maxValues > 0 {
		r.MaxValues = int64(s.maxValues)
		r.distinct = newDistinct(r.MaxValues, r.longestPeriod())
	}
	// Those that are tried out come last, since they are groups of their own.
	slices.SortStableFunc(r.Limits, func(a, b Limit) int { return compareBool(a.Shadow, b.Shadow) })
	if c.options.ReplacedNames {
		c.nameAsReplaced(r, s)
	}
	c.domain.rules = append(c.domain.rules, r)
	return r
}

func (r *Rule) longestPeriod() time.Duration {
	longest := time.Duration(0)
	for i := range r.Limits {
		longest = max(longest, r.Limits[i].Period)
	}
	return longest
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// addLimit adds a limit to r. One of several has a path of its own.
func (c *compiler) addLimit(r *Rule, s *limitSpec, several bool) {
	r.Replaces = append(r.Replaces, s.replaces...)
	c.limits = append(c.limits, pathLimit{s, r.Path})
	if s.unlimited {
		r.Unlimited = true
		return
	}
	l := Limit{Limit: s.limit, Name: s.name, Unit: s.unit, Multiplier: s.multiplier, Shadow: s.shadow, Path: r.Path,
		OwnBurst: s.written["burst"] != nil,
	}
	if several {
		l.Path += "/" + l.label()
	}
	r.Limits = append(r.Limits, l)
}

// label is the limit's name, or what it is.
func (l *Limit) label() string {
	if l.Name != "" {
		return l.Name
	}
	return fmt.Sprintf("%d-per-%s", l.Requests, strings.ReplaceAll(l.Unit.Words(l.Multiplier), " ", "-"))
}

// role: shadow beats quota, as a shadow rule never denies.
func (s *descriptorSpec) role() limiter.Role {
	switch {
	case s.shadow:
		return limiter.Shadow
	case s.quota:
		return limiter.Quota
	}
	return limiter.Enforced
}

func (c *compiler) charge(s *descriptorSpec) limiter.Charge {
	switch {
	case c.options.StopTogether:
		return limiter.Together | limiter.ChargeDenied
	case s.countDenied:
		return limiter.ChargeDenied
	}
	return limiter.Together
}

// checkReplaces refuses limits that replace each other in a circle, since a request that meets all of them
// would meet no limit at all, and doubts names that no limit has.
func (c *compiler) checkReplaces() {
	replaces := map[string][]string{}
	for _, l := range c.limits {
		replaces[l.name] = append(replaces[l.name], l.replaces...)
	}
	for _, l := range c.limits {
		path := l.path + ".rate_limit.replaces"
		for _, name := range l.replaces {
			if _, known := replaces[name]; !known {
				c.report(Warning, l.at, path, fmt.Sprintf("no limit has the name %q%s", name,
					suggest(name, slices.Collect(maps.Keys(replaces)))))
			}
		}
		if l.name == "" {
			continue
		}
		if circle := findCircle(replaces, l.name, []string{l.name}, map[string]bool{}); len(circle) > 2 {
			c.errorf(l.at, path, "%s: together they leave no limit; delete one of these replaces",
				strings.Join(circle, " replaces "))
		}
	}
}

// findCircle returns path with a way along replaces from its end back to name, or nil. seen holds the names
// from which there is no way.
func findCircle(replaces map[string][]string, name string, path []string, seen map[string]bool) []string {
	last := path[len(path)-1]
	if seen[last] {
		return nil
	}
	seen[last] = true
	for _, next := range replaces[last] {
		if next == name {
			return append(slices.Clip(path), name)
		}
		if circle := findCircle(replaces, name, append(slices.Clip(path), next), seen); circle != nil {
			return circle
		}
	}
	return nil
}
