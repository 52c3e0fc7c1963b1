package descriptors

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// OverrideKind says what an Override does.
type OverrideKind string

// The kinds.
const (
	// OverrideShadow tries limits out: they count and refuse nothing.
	OverrideShadow OverrideKind = "shadow"
	// OverrideUnlimited takes limits away: nothing is counted.
	OverrideUnlimited OverrideKind = "unlimited"
	// OverrideDeny refuses everything, also while the store fails, and counts nothing.
	OverrideDeny OverrideKind = "deny"
	// OverrideLimit has another number, and perhaps another period, in the limit's place. It keeps the limit's algorithm,
	// and so its count if it keeps its period. A burst stays if it was written, and else is the new number.
	OverrideLimit OverrideKind = "limit"
)

// Override is what stands in the place of a rule's limits for a while.
type Override struct {
	// ID names the override in explanations.
	ID     string
	Domain string
	// Rule is the path of a rule, for all of its limits, or that of one of its limits.
	Rule string
	// Match narrows the override to descriptors that have all of these entries, as Domain.Prepare leaves them.
	Match []Entry
	Kind  OverrideKind
	// Requests, Unit and Multiplier are the limit of OverrideLimit.
	Requests   uint32
	Unit       Unit
	Multiplier uint32
}

// overridden is a rule with an override in it.
type overridden struct {
	match []Entry
	rule  *Rule
}

// Words says what o does: "shadow", or "limit 500 per second".
func (o *Override) Words() string {
	if o.Kind != OverrideLimit {
		return string(o.Kind)
	}
	return fmt.Sprintf("limit %d per %s", o.Requests, o.Unit.Words(o.Multiplier))
}

// WithOverrides returns rs with these overrides and no others. Where several fit a descriptor, one that matches more entries
// goes before others, and among equals the first of the list. problems are why each of the list is not in force, or nil.
func (rs *Ruleset) WithOverrides(list []Override) (with *Ruleset, problems []error) {
	with = &Ruleset{domains: make(map[string]*Domain, len(rs.domains)), Hash: rs.Hash, Limits: rs.Limits}
	for name, d := range rs.domains {
		plain := *d
		plain.overrides = nil
		with.domains[name] = &plain
	}
	problems = make([]error, len(list))
	for i := range list {
		problems[i] = with.override(&list[i])
	}
	for _, d := range with.domains {
		for _, rules := range d.overrides {
			slices.SortStableFunc(rules, func(a, b overridden) int { return cmp.Compare(len(b.match), len(a.match)) })
		}
	}
	return with, problems
}

// override puts o into the rules of its path, or into none.
func (rs *Ruleset) override(o *Override) error {
	if err := rs.CheckPath(o.Domain, o.Rule); err != nil {
		return err
	}
	d := rs.domains[o.Domain]
	made := map[*Rule]*Rule{}
	for _, r := range d.rules {
		limits := r.limitsAt(o.Rule)
		if limits == nil {
			continue
		}
		changed, err := r.overridden(o, limits)
		if err != nil {
			return fmt.Errorf("rule %s: %w", r.Path, err)
		}
		made[r] = changed
	}
	if d.overrides == nil {
		d.overrides = map[*Rule][]overridden{}
	}
	for r, changed := range made {
		d.overrides[r] = append(d.overrides[r], overridden{o.Match, changed})
	}
	return nil
}

// CheckPath reports that a domain has neither a rule nor a limit of a path, with the one that may have been meant.
func (rs *Ruleset) CheckPath(domain, path string) error {
	d := rs.domains[domain]
	if d == nil {
		return fmt.Errorf("no rules for domain %q%s", domain, suggest(domain, rs.names()))
	}
	if paths := d.paths(); !slices.Contains(paths, path) {
		return fmt.Errorf("domain %s has no rule %q%s", domain, path, suggest(path, paths))
	}
	return nil
}

func (rs *Ruleset) names() (list []string) {
	for _, d := range rs.Sorted() {
		list = append(list, d.Name)
	}
	return list
}

// paths are those of all rules and limits.
func (d *Domain) paths() (list []string) {
	for _, r := range d.rules {
		list = append(list, r.Path)
		for i := range r.Limits {
			if r.Limits[i].Path != r.Path {
				list = append(list, r.Limits[i].Path)
			}
		}
	}
	return list
}

// limitsAt are the limits that a path names, by their numbers: none, and not nil, if it is the path of a rule without one.
func (r *Rule) limitsAt(path string) []int {
	var list []int
	for i := range r.Limits {
		if path == r.Path || path == r.Limits[i].Path {
			list = append(list, i)
		}
	}
	if path == r.Path && list == nil {
		return []int{}
	}
	return list
}

// overridden returns r with o in the place of some of its limits, which are given by their numbers.
func (r *Rule) overridden(o *Override, limits []int) (*Rule, error) {
	for _, e := range o.Match {
		if !slices.ContainsFunc(r.levels, func(l level) bool { return l.key == e.Key }) {
			return nil, fmt.Errorf("its descriptors have no entry %q to match; they have %s", e.Key, strings.Join(r.keys(), ", "))
		}
	}
	if !r.mayHave(o.Match) {
		return nil, fmt.Errorf("no descriptor of it has %s", &CounterName{Entries: o.Match})
	}
	changed := *r
	changed.Override = o.ID
	changed.Limits = slices.Clone(r.Limits)
	whole := len(limits) == len(r.Limits)
	switch o.Kind {
	case OverrideShadow:
		changed.shadow(limits, whole)
	case OverrideUnlimited:
		changed.unlimit(limits)
	case OverrideDeny:
		changed.deny()
	case OverrideLimit:
		return &changed, changed.limit(o, limits)
	default:
		return nil, fmt.Errorf("there is no kind %q of override; there is %s, %s, %s and %s", o.Kind,
			OverrideShadow, OverrideUnlimited, OverrideDeny, OverrideLimit)
	}
	return &changed, nil
}

// mayHave tells whether a descriptor of r may have all of these entries. Which values a wildcard, a list or a network has is
// not asked.
func (r *Rule) mayHave(match []Entry) bool {
	open := func(l level) bool { return l.value == "" || l.several }
	free := slices.Clone(r.levels)
	slices.SortStableFunc(free, func(a, b level) int { return compareBool(open(a), open(b)) })
	for _, e := range match {
		i := slices.IndexFunc(free, func(l level) bool { return l.key == e.Key && (open(l) || l.value == e.Value) })
		if i < 0 {
			return false
		}
		free = slices.Delete(free, i, i+1)
	}
	return true
}

func (r *Rule) keys() []string {
	list := make([]string, len(r.levels))
	for i := range r.levels {
		list[i] = r.levels[i].key
	}
	return list
}

func (r *Rule) shadow(limits []int, whole bool) {
	if whole {
		r.Role = limiter.Shadow
		return
	}
	for _, i := range limits {
		r.Limits[i].Shadow = true
	}
	slices.SortStableFunc(r.Limits, func(a, b Limit) int { return compareBool(a.Shadow, b.Shadow) })
}

func (r *Rule) unlimit(limits []int) {
	for _, i := range slices.Backward(limits) {
		r.Limits = slices.Delete(r.Limits, i, i+1)
	}
	r.Unlimited = len(r.Limits) == 0
}

// deny makes r refuse: by a limit that nothing replaces, and that is asked again each minute.
func (r *Rule) deny() {
	l := Limit{Path: r.Path, Unit: Minute, Multiplier: 1}
	l.Period, _ = Minute.Period(1)
	r.Limits = []Limit{l}
	r.Unlimited, r.Exempt = false, false
	r.Role, r.Charge, r.OnFailure = limiter.Enforced, limiter.Together, limiter.FailDeny
}

// limit puts the limit of o in the place of the one that limits names. A rule without a limit gets a fixed window.
func (r *Rule) limit(o *Override, limits []int) error {
	if len(limits) > 1 {
		paths := make([]string, len(limits))
		for n, i := range limits {
			paths[n] = r.Limits[i].Path
		}
		return fmt.Errorf("it has %d limits; name one of them: %s", len(limits), strings.Join(paths, ", "))
	}
	period, ok := o.Unit.Period(o.Multiplier)
	if !ok {
		return errors.New("the limit's period is too long")
	}
	if len(limits) == 0 {
		r.Limits, limits = []Limit{{Path: r.Path}}, []int{0}
		r.Unlimited, r.Exempt = false, false
		r.MaxValues = DefaultMaxValues // nobody has said how many values a rule without a limit may have
		r.distinct = newDistinct(r.MaxValues, period)
	}
	l := &r.Limits[limits[0]]
	l.Requests, l.Unit, l.Multiplier, l.Period = o.Requests, o.Unit, max(o.Multiplier, 1), period
	switch {
	case !l.Algorithm.HasBurst():
	case l.Requests == 0:
		l.Burst = 0
	case !l.OwnBurst || l.Burst == 0:
		l.Burst = l.Requests
	}
	return l.Validate()
}

// Overridden is r, or what stands in its place for these entries, which are prepared.
func (d *Domain) Overridden(r *Rule, entries []Entry) *Rule {
	if d.overrides == nil {
		return r
	}
	for i := range d.overrides[r] {
		if o := &d.overrides[r][i]; o.fits(entries) {
			return o.rule
		}
	}
	return r
}

func (o *overridden) fits(entries []Entry) bool {
	for i := range o.match {
		if !slices.Contains(entries, o.match[i]) {
			return false
		}
	}
	return true
}
