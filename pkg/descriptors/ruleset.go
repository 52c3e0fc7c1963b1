package descriptors

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// Ruleset is what a set of rule files compiles to. It is immutable, needs no lock, and any number of
// goroutines may use it.
type Ruleset struct {
	domains map[string]*Domain
	// Hash names the rules: equal files, defaults and options have equal hashes. It is eight hex digits.
	Hash string
	// Limits is the number of limits in all domains.
	Limits int
}

// Domain is the rules of one domain.
type Domain struct {
	// Name is what Envoy's filter sends.
	Name string

	at        Problem // where its file names it
	partition string  // a key, or ""
	keys      map[string]*preparation
	root      node
	// rules in the order of their files
	rules     []*Rule
	overrides map[*Rule][]overridden // nil: there are none
}

// Rule is a descriptor of a rule file that has a rate_limit.
type Rule struct {
	// Domain is the name of the rule's domain.
	Domain string
	// Path is the domain and each level's key, with _value where there is one: shop.tenant_acme.user.
	Path string
	// Limits are decided together, those in Shadow each for itself, after the others. An Unlimited rule has
	// none.
	Limits    []Limit
	Unlimited bool
	// Exempt rules make their request free: no limit of it is asked.
	Exempt bool
	// Role is what a denial does to the request, Charge what a denied hit costs, OnFailure who answers for
	// hits that the store can't decide.
	Role      limiter.Role
	Charge    limiter.Charge
	OnFailure limiter.FailurePolicy
	// Replaces names limits that are not asked when this rule matches in the same request.
	Replaces []string
	// Each are the keys whose values are counted apart.
	Each []string
	// MaxValues is how many distinct values have counters of their own in a period; 0 is any number.
	MaxValues int64
	// Metadata is the rule's own, for the answer; in the terms of JSON. It is shared and never written.
	Metadata map[string]any
	// Override is the ID of the override that made the rule what it is, or "".
	Override string

	at       Problem   // where its file has it
	distinct *distinct // nil: there is nothing to bound
	levels   []level
	detailed bool
	perValue bool
	patterns []string // by level, the pattern that stands in for the value in counter names, or ""
}

// Limit is one rate_limit of a rule.
type Limit struct {
	limiter.Limit
	// Name is the limit's name, or "".
	Name string
	// Path is the rule's, and of one of several limits also / and its name, or what it is.
	Path string
	// Shadow limits are tried out beside those that count.
	Shadow     bool
	Unit       Unit
	Multiplier uint32
	// OwnBurst tells that the burst was written, rather than being the number of requests.
	OwnBurst bool
}

// node is a place in a domain's tree.
type node struct {
	children map[string]*branch // by key
	rule     *Rule              // nil: a descriptor that ends here has no limit
	origin   origin             // the root has none
}

// origin is where a descriptor of the rules stands, and its path, as Rule.Path is.
type origin struct {
	path, file string
	line       int
}

// String is file:line.
func (o origin) String() string { return fmt.Sprintf("%s:%d", o.file, o.line) }

// branch is all children of a node that have one key.
type branch struct {
	exact     map[string]*node
	listed    map[string]*node // by each value of a list
	networks  []networkNode    // the longest first
	wildcards []wildcardNode   // in order of precedence
	any       *node
}

type networkNode struct {
	netip.Prefix
	*node
}

type wildcardNode struct {
	wildcard
	*node
}

// Domain returns the rules of a domain, or nil if no file names it.
func (rs *Ruleset) Domain(name string) *Domain { return rs.domains[name] }

// At is where the domain's first file names it, as file:line.
func (d *Domain) At() string { return fmt.Sprintf("%s:%d", d.at.File, d.at.Line) }

// Domains calls yield for every domain, in no particular order.
func (rs *Ruleset) Domains(yield func(*Domain) bool) {
	for _, d := range rs.domains {
		if !yield(d) {
			return
		}
	}
}

// network finds the longest network that an address is in.
func (b *branch) network(value string) *node {
	if len(b.networks) == 0 {
		return nil
	}
	addr, ok := address(value)
	if !ok {
		return nil
	}
	for i := range b.networks {
		if b.networks[i].Contains(addr) {
			return b.networks[i].node
		}
	}
	return nil
}

// Prepare prepares the values of entries in place, as the domain's rules and counters want them.
func (d *Domain) Prepare(entries []Entry) { d.AppendPrepared(nil, entries) }

// AppendPrepared is Prepare for callers with a buffer: it appends hashes of values to dst, which the entries then alias.
func (d *Domain) AppendPrepared(dst []byte, entries []Entry) []byte {
	if len(d.keys) == 0 {
		return dst
	}
	for i := range entries {
		if p := d.keys[entries[i].Key]; p != nil {
			dst, entries[i].Value = p.value(dst, entries[i].Value)
		}
	}
	return dst
}

// Partition says which counters of the domain belong together: those of descriptors for which it returns the
// same text. It is the value of the key in the file's partition_by, or "".
func (d *Domain) Partition(entries []Entry) string {
	if d.partition == "" {
		return ""
	}
	for _, e := range entries {
		if e.Key == d.partition {
			return e.Value
		}
	}
	return ""
}

// Overflows tells whether a descriptor matched by r, whose values are those of AppendValues, shares the counter
// of values that are too many.
func (r *Rule) Overflows(values []byte, now time.Time) bool {
	return r.distinct != nil && !r.distinct.admit(values, now)
}

// Bounded tells whether r has a bound for distinct values that can be reached.
func (r *Rule) Bounded() bool { return r.distinct != nil }

// DistinctValues is about how many distinct values r has seen in the present period.
func (r *Rule) DistinctValues() int64 {
	if r.distinct == nil {
		return 0
	}
	return r.distinct.seen()
}

// Sorted returns the domains in the order of their names.
func (rs *Ruleset) Sorted() []*Domain {
	return slices.SortedFunc(rs.Domains, func(a, b *Domain) int { return cmp.Compare(a.Name, b.Name) })
}

// Rules returns the domain's rules in the order of its file. The caller must not change them.
func (d *Domain) Rules() []*Rule { return d.rules }

// Match finds the rule for a descriptor, or nil. The entries are prepared. At each level an exact value wins
// over one of a list, that over the longest network, that over wildcards, these in order of precedence, and a
// wildcard over a rule with the key alone; there is no way back. A rule matches
// only a descriptor of as many entries as the rule is deep.
func (d *Domain) Match(entries []Entry) *Rule {
	n := &d.root
	for i := range entries {
		if n = n.child(&entries[i]); n == nil {
			return nil
		}
	}
	return n.rule
}

func (n *node) child(e *Entry) *node {
	b := n.children[e.Key]
	if b == nil {
		return nil
	}
	if n := b.exact[e.Value]; n != nil {
		return n
	}
	if n := b.listed[e.Value]; n != nil {
		return n
	}
	if n := b.network(e.Value); n != nil {
		return n
	}
	for i := range b.wildcards {
		if b.wildcards[i].matches(e.Value) {
			return b.wildcards[i].node
		}
	}
	return b.any
}
