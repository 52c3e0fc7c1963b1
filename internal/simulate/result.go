package simulate

import (
	"cmp"
	"slices"

	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

// Result is what became of traffic.
type Result struct {
	// Requests are those that were asked for.
	Requests int64
	// From and To are the instants of the first and the last, in µs since the Unix epoch.
	From, To int64
	Timeline Timeline
	// Sets are what each set said, in the order in which they were given.
	Sets []SetResult
	// OnlyFirst and OnlySecond are how many requests one set refused and the other did not, and whom they met.
	OnlyFirst, OnlySecond       int64
	OnlyFirstWho, OnlySecondWho []Refusals
}

// SetResult is what a set said.
type SetResult struct {
	Refused int64
	// Failed are requests that got no answer, Failure is why the first of them didn't.
	Failed  int64
	Failure string
	// Limits are those that were asked, by how many requests they refused.
	Limits []LimitResult
	// Who was refused, by how often. A request that several limits refuse counts for each.
	Who []Refusals
	// Forgotten is how many counters were dropped for want of memory although they counted.
	Forgotten int64
	// Overflown is how often a descriptor came whose value was beyond its rule's max_values.
	Overflown int64
}

// LimitResult is what a limit said.
type LimitResult struct {
	Path string
	// Asked is how often it was asked.
	Asked int64
	// Refused is how often it refused a request. Over is how often it was over otherwise: since it is only tried out, or is
	// a quota beside another one that was not.
	Refused, Over int64
}

// tally counts what a set says.
type tally struct {
	set     *Set
	refused int64
	failed  int64
	failure string
	limits  map[string]*LimitResult
	who     *top
}

func newTally(s *Set) *tally { return &tally{set: s, limits: map[string]*LimitResult{}, who: newTop()} }

// ask asks the set, counts, and tells whether the request was refused. What the verdict says stays good until the next
// request.
func (t *tally) ask(r *Request) Verdict {
	v := t.set.Ask(r)
	if v.Err != nil {
		if t.failed++; t.failed == 1 {
			t.failure = v.Err.Error()
		}
		return v
	}
	if v.Refused {
		t.refused++
	}
	for i := range v.Decided {
		t.count(r, &v, &v.Decided[i])
	}
	return v
}

func (t *tally) count(r *Request, v *Verdict, d *rls.Decided) {
	l := t.limits[d.Path]
	if l == nil {
		l = &LimitResult{Path: d.Path}
		t.limits[d.Path] = l
	}
	l.Asked++
	switch {
	case refuses(v, d):
		l.Refused++
		t.who.add(d.Path, t.set.Counted(r, d))
	case d.Result == rls.ResultShadowOverLimit || d.Result == rls.ResultOverLimit:
		l.Over++
	}
}

// refuses tells whether a limit is a reason for which a request is refused.
func refuses(v *Verdict, d *rls.Decided) bool { return v.Refused && d.Result == rls.ResultOverLimit }

func (t *tally) result(n int) SetResult {
	r := SetResult{
		Refused: t.refused, Failed: t.failed, Failure: t.failure, Who: t.who.most(n),
		Forgotten: t.set.Forgotten(), Overflown: t.set.overflown,
	}
	for _, l := range t.limits {
		r.Limits = append(r.Limits, *l)
	}
	slices.SortFunc(r.Limits, func(a, b LimitResult) int {
		return cmp.Or(cmp.Compare(b.Refused, a.Refused), cmp.Compare(b.Over, a.Over), cmp.Compare(a.Path, b.Path))
	})
	return r
}
