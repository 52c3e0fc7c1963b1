package rls

import (
	"slices"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// Outcome is a call that has ended, for Options.Observe. It is good until Observe returns: its texts alias what is used
// again, and whoever keeps one clones it.
type Outcome struct {
	Answered
	// Ended is when it ended, by Options.Now.
	Ended time.Time

	call *call
}

// Verdict is what a limit did to its request.
type Verdict uint8

const (
	// Passes is also that of a quota whose request another quota admitted.
	Passes Verdict = iota
	// Refuses is that of each limit that denied, if the request was refused.
	Refuses
	// WouldRefuse is that of a limit that denied and is only tried out.
	WouldRefuse
)

// Judged is what became of one limit.
type Judged struct {
	// Path is that of Decided, and Name what the rule header says: the limit's own name, else its path, else override.
	Path, Name string
	// Counter names the counter, without the store's own prefix. It holds what a client chose, in a form of its own.
	Counter string
	// Entries are the descriptor's, prepared as the rules want them.
	Entries []descriptors.Entry
	// Cost is what the descriptor costs: 0 looks, and a negative one gives back.
	Cost    int64
	Verdict Verdict
	// Known tells whether anybody decided. Remaining, and Wait in whole seconds, are what a status says, and mean nothing
	// without.
	Known     bool
	Remaining uint32
	Wait      time.Duration
}

// Sent is the domain as the request names it, whether rules do or not.
func (o Outcome) Sent() string { return o.call.request.domain }

// StoreFailure is why the store failed, in a word, or "".
func (o Outcome) StoreFailure() string { return o.call.storeFailure }

// Policies are the failure policies that answered for hits, or nil.
func (o Outcome) Policies() []limiter.FailurePolicy { return o.call.policies() }

// Descriptors are the entries of the request's descriptors, in order, prepared where the rules want that.
func (o Outcome) Descriptors(yield func([]descriptors.Entry) bool) {
	for i := range o.call.descriptors {
		if !yield(o.call.descriptors[i].entries) {
			return
		}
	}
}

// Denies tells whether a limit refused the request, or would have.
func (o Outcome) Denies() bool {
	c := o.call
	if o.Code != codes.OK {
		return false
	}
	for i := range c.batch.Hits {
		if c.verdict(i) != Passes {
			return true
		}
	}
	return false
}

// Limits are what became of the limits of the request, in order. A call that failed has none.
func (o Outcome) Limits(yield func(Judged) bool) {
	c := o.call
	if o.Code != codes.OK {
		return
	}
	for i := range c.descriptors {
		d := &c.descriptors[i]
		for n := d.first; n < d.end; n++ {
			if !yield(c.judged(d, n)) {
				return
			}
		}
	}
}

// Strictest is the limit that a client is told of: of those that refused the one with the longest wait, else the one
// with the least room. ok is false if there is none: a limit that is only tried out isn't told of.
func (o Outcome) Strictest() (_ Judged, ok bool) {
	c := o.call
	if o.Code != codes.OK {
		return Judged{}, false
	}
	d, shown := c.strictest()
	if d == nil {
		return Judged{}, false
	}
	n := d.first
	for &c.batch.Decisions[n] != shown.decision {
		n++
	}
	return c.judged(d, n), true
}

// WouldRefuse are the names of the limits that would have refused the request, each once, or nil.
func (o Outcome) WouldRefuse() []string {
	if o.Code != codes.OK {
		return nil
	}
	return o.call.wouldRefuse()
}

func (c *call) wouldRefuse() (names []string) {
	for i := range c.descriptors {
		d := &c.descriptors[i]
		for n := d.first; n < d.end; n++ {
			if c.verdict(n) != WouldRefuse {
				continue
			}
			name := ruleName(d, shownLimit{limit: c.hitLimits[n]})
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// verdict is that of hit i.
func (c *call) verdict(i int) Verdict {
	shadow := c.batch.Hits[i].Role == limiter.Shadow
	switch {
	case c.batch.Decisions[i].Allowed || c.batch.Allowed && !shadow:
		return Passes
	case shadow || c.service.options.Shadow:
		return WouldRefuse
	}
	return Refuses
}

func (c *call) judged(d *descriptor, n int) Judged {
	shown := shownLimit{c.hitLimits[n], &c.batch.Decisions[n]}
	j := Judged{
		Path: shown.limit.Path, Name: ruleName(d, shown), Counter: c.batch.Hits[n].Key, Entries: d.entries,
		Cost: c.batch.Hits[n].Cost, Verdict: c.verdict(n), Known: shown.decision.Known(),
	}
	if d.rule == nil {
		j.Path = c.label() + BroughtAlong
	}
	if j.Known {
		j.Remaining, j.Wait = shown.remaining(), shown.wait()
	}
	return j
}
