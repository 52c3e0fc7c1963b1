package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// NewReset is the body of POST counters/reset.
type NewReset struct {
	Choice
	// Try counts what would be reset, and resets nothing.
	Try bool `json:"try,omitempty"`
}

// Reset is its answer.
type Reset struct {
	// Counters is how many were reset.
	Counters int `json:"counters"`
}

func (a *api) resetCounters(w http.ResponseWriter, r *http.Request, by string) {
	sent, ok := read[NewReset](w, r)
	if !ok {
		return
	}
	rules := a.rules(w)
	if rules == nil {
		return
	}
	if err := sent.check(rules); err != nil {
		refuse(w, http.StatusBadRequest, err)
		return
	}
	var one []limiter.Hit
	if len(sent.Descriptor) > 0 {
		var err error
		if one, err = keysOf(rules, &sent.Choice); err != nil {
			refuse(w, http.StatusNotFound, err)
			return
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), sweepPatience)
	defer cancel()
	n, err := a.reset(ctx, newFilter(rules, &sent.Choice), one, sent.Try)
	if n > 0 && !sent.Try {
		a.Log.Warn("counters reset", append(sent.attributes(rules), "counters", n, "by", by)...)
		err = errors.Join(err, a.Overrides.CountersReset(ctx))
	}
	if err != nil {
		refuse(w, http.StatusServiceUnavailable, fmt.Errorf("after %d counters: %w", n, err))
		return
	}
	answer(w, http.StatusOK, Reset{n})
}

// keysOf are the counters of one descriptor, at least one, also those that an override has put out of use for now.
func keysOf(rules *descriptors.Ruleset, choice *Choice) (hits []limiter.Hit, err error) {
	plain, _ := rules.WithOverrides(nil)
	for _, rs := range []*descriptors.Ruleset{rules, plain} {
		list, err := countersOf(rs, choice)
		if err != nil {
			return nil, err
		}
		for _, c := range list {
			if !slices.ContainsFunc(hits, func(h limiter.Hit) bool { return h.Key == c.hit.Key }) {
				hits = append(hits, c.hit)
			}
		}
	}
	if len(hits) == 0 {
		return nil, errors.New("the descriptor has no counters: its rule has no limit")
	}
	return hits, nil
}

// reset resets those counters, or without them all that the filter means, and returns how many there were, also with an
// error. If it only tries, it resets none.
func (a *api) reset(ctx context.Context, f *filter, one []limiter.Hit, try bool) (n int, err error) {
	if one != nil && try {
		return len(one), nil
	}
	for _, where := range a.Counters {
		deleted := 0
		if one != nil {
			deleted, err = where.Delete(ctx, one)
		} else {
			err = where.Sweep(ctx, f.begin(), func(name string) (drop, more bool) {
				c, meant := f.counter(name)
				if !meant || c.hit.Key == "" { // one whose name is hashed may be another domain's
					return false, true
				}
				deleted++
				return !try, true
			})
		}
		if n += deleted; err != nil {
			return n, err
		}
	}
	return n, nil
}

// maxLogged is how much of a descriptor is logged.
const maxLogged = 256

// attributes are c for the log, with values as they are counted: hashed where rules want them to be.
func (c *Choice) attributes(rules *descriptors.Ruleset) []any {
	list := []any{"domain", c.Domain}
	if c.Rule != "" {
		list = append(list, "rule", c.Rule)
	}
	for name, entries := range map[string][]Entry{"descriptor": c.Descriptor, "match": c.Match} {
		if len(entries) > 0 {
			n := descriptors.CounterName{Entries: prepared(rules.Domain(c.Domain), entries)}
			text := n.String()
			list = append(list, name, text[:min(len(text), maxLogged)])
		}
	}
	return list
}

// Gift is the body of POST counters/give. Its answer is that of GET counter.
type Gift struct {
	Domain     string  `json:"domain"`
	Descriptor []Entry `json:"descriptor"`
	// Hits are given back to each counter of the descriptor, but for what it has not counted.
	Hits int64 `json:"hits"`
}

func (a *api) giveBack(w http.ResponseWriter, r *http.Request, by string) {
	sent, ok := read[Gift](w, r)
	if !ok {
		return
	}
	rules := a.rules(w)
	if rules == nil {
		return
	}
	choice := Choice{Domain: sent.Domain, Descriptor: sent.Descriptor}
	err := choice.check(rules)
	if err == nil && (sent.Hits < 1 || sent.Hits > limiter.MaxCost) {
		err = fmt.Errorf("hits is a number from 1 to %d", int64(limiter.MaxCost))
	}
	list := chosen(w, rules, &choice, err)
	if list == nil {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	given := make([]*Counter, len(list))
	for i := range list {
		list[i].hit.Cost = -sent.Hits
		given[i] = &list[i]
	}
	if err := a.decide(ctx, given); err != nil {
		refuse(w, http.StatusServiceUnavailable, err)
		return
	}
	a.Log.Warn("hits given back", append(choice.attributes(rules), "hits", sent.Hits, "by", by)...)
	if err := a.Overrides.CountersReset(ctx); err != nil {
		refuse(w, http.StatusServiceUnavailable, fmt.Errorf("the hits are given back: %w", err))
		return
	}
	answer(w, http.StatusOK, CounterList{Counters: list})
}
