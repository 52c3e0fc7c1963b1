package envoycheck

import (
	"fmt"
	"slices"
	"strings"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
)

// compare compares what is sent with the rules.
func (c *checker) compare(all []send) {
	made := production{rules: map[*descriptors.Rule]bool{}, domains: map[string]bool{}, vague: map[string]bool{}}
	idle := map[*tree]verdict{}
	for i := range all {
		s := &all[i]
		d := c.domain(s.domain, s.chain.name)
		if d == nil {
			made.anywhere = made.anywhere || s.domain == nil
			continue
		}
		made.domains[d.Name] = true
		if len(c.tablesOf(s.chain)) == 0 && len(s.limits) == 0 {
			made.vague[d.Name] = true
		}
		for _, l := range s.limits {
			v := made.reach(d, shapes(l.parts))
			if l.at.has("limit") && !s.chain.thrift || s.chain.hasLocal(&s.spot) && !s.filter.typedAt(&s.spot) {
				v = verdict{} // it brings its own limit, or is for the filter that needs no service
			}
			if best, known := idle[l.at]; !known || v.unmatched < best.unmatched {
				v.path = l.path
				idle[l.at] = v
			}
		}
	}
	for at, v := range idle {
		v.report(c, at.problem(v.path))
	}
	for i, n := range c.network {
		c.compareNetwork(n, networkPath(i), &made)
	}
	c.unproduced(&made)
}

// verdict is what becomes of a limit's descriptor on the route where most of it is matched.
type verdict struct {
	path      string
	unmatched int    // shapes that no rule matches
	none      bool   // all of them
	why       string // of the longest such shape
}

func (v verdict) report(c *checker, at descriptors.Problem) {
	switch {
	case v.none && v.why != "":
		c.add(neverMatches, at, "%s", v.why)
	case v.unmatched > 0:
		c.add(sometimesUnmatched, at, "%s", v.why)
	}
}

// production is what has been found to be sent.
type production struct {
	rules   map[*descriptors.Rule]bool
	domains map[string]bool
	vague   map[string]bool // domains that more is sent for than is known
	// anywhere tells that something is sent for a domain that isn't known.
	anywhere bool
}

// reach marks the rules of d that shapes can match, the longest of which is the first. A descriptor without entries
// is a matter of its own.
func (p *production) reach(d *descriptors.Domain, shapes [][]descriptors.Pattern) verdict {
	v := verdict{none: true}
	for _, shape := range slices.Backward(shapes) {
		rules, why := d.Reach(shape)
		for _, r := range rules {
			p.rules[r], v.none = true, false
		}
		if len(rules) == 0 && len(shape) > 0 {
			v.unmatched++
			v.why = fmt.Sprintf("%s matches no rule of domain %s: %s", shapeText(shape), d.Name, why)
		}
	}
	return v
}

// domain is the rules of a filter's domain, or if that isn't known the only ones there are.
func (c *checker) domain(name *tree, path string) *descriptors.Domain {
	domains := c.rules.Sorted()
	if name == nil {
		if len(domains) == 1 {
			return domains[0]
		}
		return nil
	}
	if d := c.rules.Domain(name.str()); d != nil {
		return d
	}
	known := make([]string, len(domains))
	for i, d := range domains {
		known[i] = d.Name
	}
	mend := "write rules for it"
	if near, ok := descriptors.Nearest(name.str(), known); ok {
		mend = "did you mean " + near + "?"
	} else if len(known) > 0 && len(known) <= 5 {
		mend = "there is " + strings.Join(known, ", ")
	}
	c.add(unknownDomain, name.problem(path), "no rules for domain %s; %s", name.str(), mend)
	return nil
}

func (c *checker) compareNetwork(n *tree, path string, made *production) {
	d := c.domain(n.get("domain"), path)
	if d == nil {
		return
	}
	made.domains[d.Name] = true
	for i, descriptor := range n.get("descriptors").items() {
		made.reach(d, [][]descriptors.Pattern{networkShape(descriptor)}).report(c, descriptor.problem(fmt.Sprintf("%s.descriptors[%d]", path, i)))
	}
}

// networkShape is what a descriptor of a network filter looks like, whose values may be format strings.
func networkShape(descriptor *tree) (shape []descriptors.Pattern) {
	for _, e := range descriptor.get("entries").items() {
		p := descriptors.Pattern{Key: e.get("key").str()}
		if value := e.get("value").str(); !isFormat(value) {
			p.Values = []string{value}
		}
		shape = append(shape, p)
	}
	return shape
}

// unproduced: rules that nothing of what is sent can match.
func (c *checker) unproduced(made *production) {
	for _, d := range c.rules.Sorted() {
		switch {
		case made.anywhere:
			continue
		case !made.domains[d.Name]:
			c.add(unaskedDomain, d.Place(), "no filter asks for this domain; its rules limit nothing here")
			continue
		case made.vague[d.Name]:
			continue
		}
		for _, r := range d.Rules() {
			if !made.rules[r] {
				c.add(neverProduced, r.Place(), "no action of this Envoy makes a descriptor for it")
			}
		}
	}
}
