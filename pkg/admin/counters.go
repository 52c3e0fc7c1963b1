package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// Counter is a counter as it is told of.
type Counter struct {
	// Descriptor is whose it is, as text that can be printed anywhere.
	Descriptor string `json:"descriptor"`
	// Rule is the path of its limit, or "" where the rules have none for it any more, or never had.
	Rule string `json:"rule,omitempty"`
	// Limit is that in words, else the algorithm and the period that the counter's name tells.
	Limit string `json:"limit"`
	// Used and Left are what is counted and what would still be admitted, and Reset the seconds until a window ends or
	// the counter is as good as new. They are nil where there is no limit to tell them by.
	Used  *int64 `json:"used,omitempty"`
	Left  *int64 `json:"left,omitempty"`
	Reset *int64 `json:"reset_seconds,omitempty"`

	hit limiter.Hit
}

// CounterList is the answer to GET counters and GET counter.
type CounterList struct {
	Counters []Counter `json:"counters"`
	// More tells that there are more than were asked for.
	More bool `json:"more,omitempty"`
}

// The bounds of a list.
const (
	defaultListed = 100
	maxListed     = 1000
)

// Choice says which counters of a domain are meant: those of one descriptor, or those of a rule or with some entries.
type Choice struct {
	Domain string `json:"domain"`
	// Descriptor is a descriptor's entries in order; with it there is neither a Rule nor a Match.
	Descriptor []Entry `json:"descriptor,omitempty"`
	Rule       string  `json:"rule,omitempty"`
	Match      []Entry `json:"match,omitempty"`
}

// check reports what is wrong with c under these rules.
func (c *Choice) check(rules *descriptors.Ruleset) error {
	switch {
	case c.Domain == "":
		return errors.New("domain is missing")
	case c.Descriptor != nil && len(c.Descriptor) == 0:
		return errors.New("the descriptor has no entries; leave it out where all of the domain is meant")
	case len(c.Descriptor) > maxEntries || len(c.Match) > maxEntries:
		return fmt.Errorf("there are more than %d entries", maxEntries)
	case len(c.Descriptor) > 0 && (c.Rule != "" || len(c.Match) > 0):
		return errors.New("a descriptor stands for itself: with it there is neither rule nor match")
	case c.Rule != "":
		return rules.CheckPath(c.Domain, c.Rule)
	}
	return nil
}

// filter decides which names are of a Choice without a descriptor.
type filter struct {
	*Choice
	domain *descriptors.Domain // nil: no rules name it
	match  []descriptors.Entry
}

func newFilter(rules *descriptors.Ruleset, c *Choice) *filter {
	d := rules.Domain(c.Domain)
	return &filter{c, d, prepared(d, c.Match)}
}

// begin is what names of the filter begin with, by their first bytes.
func (f *filter) begin() string {
	begin := descriptors.DomainName(f.Domain)[:1]
	if f.whole() {
		begin += descriptors.HashedName
	}
	return begin
}

// whole tells whether all counters are meant, among them those whose names are hashed, and may be of any domain.
func (f *filter) whole() bool { return f.Rule == "" && len(f.match) == 0 }

// counter reads a name, and tells whether it is meant.
func (f *filter) counter(name string) (c Counter, ok bool) {
	n, ok := descriptors.ParseCounterName(name)
	switch {
	case !ok:
		return c, false
	case n.Hash != "":
		return Counter{Descriptor: n.String(), Limit: periodText(&n)}, f.whole()
	case n.Domain != f.Domain || !n.Fits(f.match):
		return c, false
	}
	c = Counter{Descriptor: n.String(), Limit: periodText(&n), hit: limiter.Hit{Key: strings.Clone(name)}}
	if f.domain == nil {
		return c, f.Rule == ""
	}
	c.hit.Partition = f.domain.Partition(n.Entries)
	rule := f.domain.RuleOf(&n)
	if rule == nil {
		return c, f.Rule == ""
	}
	limit := rule.LimitOf(&n)
	if now := f.domain.Overridden(rule, n.Entries).LimitOf(&n); now != nil {
		limit = now
	}
	c.Rule = rule.Path
	if limit != nil {
		c.Rule, c.Limit, c.hit.Limit = limit.Path, limit.Words(), &limit.Limit
	}
	return c, f.Rule == "" || f.Rule == rule.Path || f.Rule == c.Rule
}

func periodText(n *descriptors.CounterName) string {
	return fmt.Sprintf("%s of %s", n.Algorithm, n.Period)
}

func (a *api) listCounters(w http.ResponseWriter, r *http.Request) {
	rules := a.rules(w)
	if rules == nil {
		return
	}
	choice, most, err := queried(r.URL.RawQuery)
	if err == nil {
		err = choice.check(rules)
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), sweepPatience)
	defer cancel()
	list, err := a.list(ctx, newFilter(rules, &choice), most)
	if err != nil {
		refuse(w, http.StatusServiceUnavailable, err)
		return
	}
	answer(w, http.StatusOK, list)
}

// list finds up to most counters, and looks at them.
func (a *api) list(ctx context.Context, f *filter, most int) (CounterList, error) {
	found, more := map[string]Counter{}, false
	for _, where := range a.Counters {
		err := where.Sweep(ctx, f.begin(), func(name string) (drop, goOn bool) {
			c, meant := f.counter(name)
			switch _, known := found[name]; {
			case !meant || known:
			case len(found) == most:
				more = true
			default:
				found[strings.Clone(name)] = c
			}
			return false, !more
		})
		if err != nil {
			return CounterList{}, err
		}
	}
	list := CounterList{make([]Counter, 0, len(found)), more}
	for _, c := range found {
		list.Counters = append(list.Counters, c)
	}
	slices.SortFunc(list.Counters, func(a, b Counter) int {
		return cmp.Or(cmp.Compare(a.Descriptor, b.Descriptor), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Limit, b.Limit))
	})
	return list, a.lookAt(ctx, list.Counters)
}

// queried reads the choice of a GET.
func queried(query string) (c Choice, most int, err error) {
	q, err := url.ParseQuery(query)
	if err != nil {
		return c, 0, fmt.Errorf("reading the query: %w", err)
	}
	for name := range q {
		if !slices.Contains([]string{"domain", "rule", "match", "entry", "max"}, name) {
			return c, 0, fmt.Errorf("there is no parameter %q", name)
		}
	}
	c = Choice{Domain: q.Get("domain"), Rule: q.Get("rule")}
	if c.Match, err = entriesOf(q["match"]); err == nil {
		c.Descriptor, err = entriesOf(q["entry"])
	}
	if err != nil {
		return c, 0, err
	}
	most, err = strconv.Atoi(cmp.Or(q.Get("max"), strconv.Itoa(defaultListed)))
	if err != nil || most < 1 || most > maxListed {
		return c, 0, fmt.Errorf("max is a number from 1 to %d", maxListed)
	}
	return c, most, nil
}

func entriesOf(texts []string) (list []Entry, err error) {
	for _, text := range texts {
		key, value, ok := strings.Cut(text, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("%q is not an entry; write key=value", text)
		}
		list = append(list, Entry{key, value})
	}
	return list, nil
}

// lookedAt is how many counters are looked at in one batch.
const lookedAt = 64

// lookAt fills in what is counted, where there is a limit to tell that by.
func (a *api) lookAt(ctx context.Context, list []Counter) error {
	var known []*Counter
	for i := range list {
		if list[i].hit.Limit != nil {
			known = append(known, &list[i])
		}
	}
	for part := range slices.Chunk(known, lookedAt) {
		if err := a.decide(ctx, part); err != nil {
			return err
		}
	}
	return nil
}

// decide decides the hits of some counters, each by itself and none of them refused to anybody, and tells what came of it.
func (a *api) decide(ctx context.Context, list []*Counter) error {
	b := &limiter.Batch{Decisions: make([]limiter.Decision, len(list))}
	for i, c := range list {
		h := c.hit
		h.Group, h.Role = uint16(i), limiter.Shadow
		b.Hits = append(b.Hits, h)
	}
	if err := a.Store.Decide(ctx, b); err != nil {
		return err
	}
	for i, c := range list {
		d, l := &b.Decisions[i], c.hit.Limit
		whole := int64(l.Requests)
		if l.Algorithm.HasBurst() {
			whole = int64(l.Burst)
		}
		used, left := max(whole-d.Room, 0), max(d.Room, 0)
		reset := int64((d.ResetAfter + time.Second - 1) / time.Second)
		c.Used, c.Left, c.Reset = &used, &left, &reset
	}
	return nil
}

func (a *api) getCounter(w http.ResponseWriter, r *http.Request) {
	rules := a.rules(w)
	if rules == nil {
		return
	}
	choice, _, err := queried(r.URL.RawQuery)
	if err == nil {
		err = choice.check(rules)
	}
	list := chosen(w, rules, &choice, err)
	if list == nil {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	if err := a.lookAt(ctx, list); err != nil {
		refuse(w, http.StatusServiceUnavailable, err)
		return
	}
	answer(w, http.StatusOK, CounterList{Counters: list})
}

// chosen are the counters of a descriptor, or nil: then the request was refused, for what is wrong with it or since it has none.
func chosen(w http.ResponseWriter, rules *descriptors.Ruleset, choice *Choice, wrong error) []Counter {
	if wrong != nil {
		refuse(w, http.StatusBadRequest, wrong)
		return nil
	}
	list, err := countersOf(rules, choice)
	if err != nil {
		refuse(w, http.StatusNotFound, err)
		return nil
	}
	return list
}

// countersOf are the counters that a request for a descriptor would be counted in, by the rules in force.
func countersOf(rules *descriptors.Ruleset, choice *Choice) ([]Counter, error) {
	d := rules.Domain(choice.Domain)
	entries := prepared(d, choice.Descriptor)
	var rule *descriptors.Rule
	if d != nil {
		rule = d.Match(entries)
	}
	if rule == nil {
		return nil, errors.New(rules.Unmatched(choice.Domain, entries))
	}
	counter := descriptors.Counter{Domain: choice.Domain, Entries: entries, Rule: rule}
	counter.Overflow = (&descriptors.Look{}).Overflows(rule, counter.AppendValues(nil), time.Now())
	in := d.Overridden(rule, entries)
	list := make([]Counter, len(in.Limits))
	for i := range in.Limits {
		l := &in.Limits[i]
		name := string(counter.AppendName(nil, &l.Limit))
		list[i] = Counter{
			Descriptor: describe(name, entries), Rule: l.Path, Limit: l.Words(),
			hit: limiter.Hit{Key: name, Partition: d.Partition(entries), Limit: &l.Limit},
		}
	}
	return list, nil
}

// describe is a counter's descriptor, also where its name is hashed.
func describe(name string, entries []descriptors.Entry) string {
	n, ok := descriptors.ParseCounterName(name)
	if !ok || n.Hash != "" {
		n = descriptors.CounterName{Entries: entries}
	}
	return n.String()
}
