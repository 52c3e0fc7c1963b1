package descriptors

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// Loader compiles the rules of a service time after time: files, each for itself, and beside them a set that comes
// as a whole. A file that has gone bad keeps the rules that it had when it was last good, while the others change. It
// is for one goroutine.
type Loader struct {
	options Options
	good    map[string]File // as they were last good, by name
	set     []File          // as it was last good
}

// NewLoader returns a Loader without rules.
func NewLoader(o Options) *Loader { return &Loader{options: o, good: map[string]File{}} }

// LoadSet compiles a set of files that are used together or not at all, beside the files of the last Load, and returns
// what is wrong with the set. With an Error among it the rules are nil, and the last good set stays.
func (l *Loader) LoadSet(set []File) (*Ruleset, []Problem) {
	rules, problems := Compile(slices.Concat(l.goodFiles(), set), l.options)
	names := map[string]bool{}
	for _, f := range set {
		names[f.Name] = true
	}
	problems = slices.DeleteFunc(problems, func(p Problem) bool { return !names[p.File] })
	if HasErrors(problems) {
		return nil, problems
	}
	l.set = set
	return rules, problems
}

func (l *Loader) goodFiles() []File {
	return slices.SortedFunc(maps.Values(l.good), func(a, b File) int { return cmp.Compare(a.Name, b.Name) })
}

// Load compiles files, and returns what is wrong with them as they are now. missing tells whether a bad file
// has no good version to take its place. Of two files with one domain the one that was loaded first stays,
// and among new ones the one whose name comes first. Files with whose defaults the set can't be used change nothing.
func (l *Loader) Load(files []File) (rules *Ruleset, problems []Problem, missing bool) {
	files = slices.SortedFunc(slices.Values(files), func(a, b File) int {
		if l.options.Merge { // always the order of names, which that of wildcards depends on
			return cmp.Compare(a.Name, b.Name)
		}
		return cmp.Or(compareBool(l.isNew(a), l.isNew(b)), cmp.Compare(a.Name, b.Name))
	})
	rules, problems = Compile(slices.Concat(l.set, files), l.options)
	bad := map[string]bool{}
	for _, p := range problems {
		if p.Severity == Error {
			bad[p.File] = true
		}
	}
	if slices.ContainsFunc(l.set, func(f File) bool { return bad[f.Name] }) {
		rules, _ = Compile(slices.Concat(l.set, l.goodFiles()), l.options)
		return rules, problems, false
	}
	good := map[string]File{}
	usable := slices.Clone(l.set)
	for _, f := range files {
		if bad[f.Name] {
			var known bool
			if f, known = l.good[f.Name]; !known {
				missing = true
				continue
			}
		}
		good[f.Name] = f
		usable = append(usable, f)
	}
	l.good = good
	if len(bad) > 0 {
		rules, _ = Compile(usable, l.options)
	}
	return rules, problems, missing
}

func (l *Loader) isNew(f File) bool {
	_, known := l.good[f.Name]
	return !known
}

// Changes says how rs differs from old, which may be nil, a line for each limit: "+ shop.user: 10 per hour for
// each distinct user, …", "- shop.user: …", and of what has changed only so much: "~ shop.user: 10 per hour ->
// 5 per hour".
func (rs *Ruleset) Changes(old *Ruleset) []string {
	before, after := old.words(), rs.words()
	var changes []string
	for _, path := range slices.Sorted(maps.Keys(after)) {
		was, known := before[path]
		now := after[path]
		switch {
		case !known:
			changes = append(changes, fmt.Sprintf("+ %s: %s%s", path, now.amount, now.how))
		case was.how != now.how:
			changes = append(changes, fmt.Sprintf("~ %s: %s%s -> %s%s", path, was.amount, was.how, now.amount, now.how))
		case was.amount != now.amount:
			changes = append(changes, fmt.Sprintf("~ %s: %s -> %s", path, was.amount, now.amount))
		}
	}
	for _, path := range slices.Sorted(maps.Keys(before)) {
		if _, known := after[path]; !known {
			changes = append(changes, fmt.Sprintf("- %s: %s%s", path, before[path].amount, before[path].how))
		}
	}
	return changes
}

// limitWords says how much, and how.
type limitWords struct {
	amount, how string
}

// words is what each limit is, by its path.
func (rs *Ruleset) words() map[string]limitWords {
	m := map[string]limitWords{}
	if rs == nil {
		return m
	}
	for d := range rs.Domains {
		for _, r := range d.rules {
			r.addWords(m)
		}
	}
	return m
}

func (r *Rule) addWords(m map[string]limitWords) {
	if len(r.Limits) == 0 {
		m[r.Path] = limitWords{r.Words()[0], ""}
	}
	for i := range r.Limits {
		l := &r.Limits[i]
		m[l.Path] = limitWords{l.Words(), r.how(l)}
	}
}
