package main

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
)

// maxReloads is how many loads of rules are remembered, and maxReloadText how many bytes of each text.
const (
	maxReloads    = 50
	maxReloadText = 500
)

// reload is a load of rules, or several in a row that came to the same.
type reload struct {
	// First and Last are when it was, and Times how often.
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
	Times int       `json:"times"`
	// Outcome says what came of it.
	Outcome outcome `json:"outcome"`
	// Source is file, xds or snapshot, and Hash names the rules that were in force afterwards, "" for none.
	Source string `json:"source"`
	Hash   string `json:"hash"`
	// Changes are how the rules differ from those before, and Problems what was wrong, each up to maxLogged.
	Changes      []string `json:"changes"`
	MoreChanges  int      `json:"more_changes,omitempty"`
	Problems     []string `json:"problems"`
	MoreProblems int      `json:"more_problems,omitempty"`
}

// outcome is what came of a load.
type outcome string

// The outcomes.
const (
	reloadInForce outcome = "in_force"
	reloadPartly  outcome = "partly" // bad files are in force as they last were good, or missing
	reloadRefused outcome = "refused"
)

// newReload is a load that has just ended, with rules, or nil, in force.
func newReload(o outcome, source string, rules *descriptors.Ruleset) *reload {
	now := time.Now()
	r := &reload{First: now, Last: now, Times: 1, Outcome: o, Source: source}
	if rules != nil {
		r.Hash = rules.Hash
	}
	return r
}

// tell adds what changed and what was wrong.
func (r *reload) tell(changes, problems []string) *reload {
	r.Changes, r.MoreChanges = first(changes)
	r.Problems, r.MoreProblems = first(problems)
	return r
}

// first is a list of its own of the first maxLogged texts, each cut at maxReloadText, and how many more there are.
func first(texts []string) (list []string, more int) {
	n := min(len(texts), maxLogged)
	list = make([]string, n)
	for i, text := range texts[:n] {
		if len(text) > maxReloadText {
			text = strings.ToValidUTF8(text[:maxReloadText], "") + "…"
		}
		list[i] = strings.Clone(text)
	}
	return list, len(texts) - n
}

// reloads are the last loads of rules. The zero value is ready, for any number of goroutines.
type reloads struct {
	mu   sync.Mutex
	list []reload // the oldest first
}

// add remembers a load. One that is like the last one only counts: a control plane may send what is wrong for ever.
func (l *reloads) add(r *reload) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.list); n > 0 && l.list[n-1].like(r) {
		l.list[n-1].Last = r.Last
		l.list[n-1].Times++
		return
	}
	if len(l.list) == maxReloads {
		l.list = slices.Delete(l.list, 0, 1)
	}
	l.list = append(l.list, *r)
}

// like tells whether r and a load after it came to the same.
func (r *reload) like(after *reload) bool {
	return r.Outcome == after.Outcome && r.Source == after.Source && r.Hash == after.Hash && len(after.Changes) == 0 &&
		slices.Equal(r.Problems, after.Problems) && r.MoreProblems == after.MoreProblems
}

// newest are the loads, the last one first.
func (l *reloads) newest() []reload {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := append([]reload{}, l.list...)
	slices.Reverse(list)
	return list
}
