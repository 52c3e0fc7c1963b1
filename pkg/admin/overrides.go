package admin

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/overrides"
)

// NewOverride is the body of POST overrides.
type NewOverride struct {
	Domain string `json:"domain"`
	// Rule is the path of a rule or of one of its limits.
	Rule  string  `json:"rule"`
	Match []Entry `json:"match,omitempty"`
	// Kind is shadow, unlimited, deny or limit, and Limit that of the last, such as 500/second.
	Kind  string `json:"kind"`
	Limit string `json:"limit,omitempty"`
	// For is how long it lasts, such as 1h, at most 24h.
	For    string `json:"for"`
	Reason string `json:"reason,omitempty"`
}

// Override is an override as it is told of.
type Override struct {
	ID     string `json:"id"`
	Domain string `json:"domain"`
	Rule   string `json:"rule"`
	// Match is the text of what it is narrowed to, that can be printed anywhere.
	Match string `json:"match,omitempty"`
	// Does says what it does, such as "limit 500 per second".
	Does   string `json:"does"`
	Reason string `json:"reason,omitempty"`
	By     string `json:"by"`
	// Seconds are how long it still lasts.
	Seconds int64 `json:"seconds"`
	// Problem is why it does nothing, such as that its rule is gone, or "".
	Problem string `json:"problem,omitempty"`
}

func told(o *overrides.Override, problem error) Override {
	t := Override{
		ID: o.ID, Domain: o.Domain, Rule: o.Rule, Match: o.MatchText(), Does: o.Words(), Reason: o.Reason, By: o.By,
		Seconds: int64(time.Until(o.Until).Round(time.Second) / time.Second),
	}
	if problem != nil {
		t.Problem = problem.Error()
	}
	return t
}

// Overrides is the answer to GET overrides, the newest first.
type Overrides struct {
	Overrides []Override `json:"overrides"`
}

func (a *api) listOverrides(w http.ResponseWriter, _ *http.Request) {
	active := a.Overrides.List()
	plain := make([]descriptors.Override, len(active))
	for i := range active {
		plain[i] = active[i].Override
	}
	rules := a.Rules()
	if rules == nil {
		rules = &descriptors.Ruleset{} // in which all of them do nothing
	}
	_, problems := rules.WithOverrides(plain)
	list := Overrides{make([]Override, len(active))}
	for i := range active {
		list.Overrides[i] = told(&active[i], problems[i])
	}
	answer(w, http.StatusOK, list)
}

func (a *api) setOverride(w http.ResponseWriter, r *http.Request, by string) {
	sent, ok := read[NewOverride](w, r)
	if !ok {
		return
	}
	rules := a.rules(w)
	if rules == nil {
		return
	}
	lifetime, err := time.ParseDuration(sent.For)
	if err != nil {
		refuse(w, http.StatusBadRequest, errors.New(`for is how long it lasts, with its unit, such as "1h" or "30m"; it is needed`))
		return
	}
	o := overrides.Override{Reason: sent.Reason, By: by, Override: descriptors.Override{
		Domain: sent.Domain, Rule: sent.Rule, Match: prepared(rules.Domain(sent.Domain), sent.Match),
		Kind: descriptors.OverrideKind(sent.Kind),
	}}
	if err := check(rules, &o, sent.Limit); err != nil {
		refuse(w, http.StatusBadRequest, err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	if lifetime < time.Second || lifetime > overrides.MaxLifetime {
		refuse(w, http.StatusBadRequest, errors.New("for is from 1s to 24h: what is to stay longer belongs into the rules"))
		return
	}
	o, err = a.Overrides.Put(ctx, o, lifetime)
	switch {
	case errors.Is(err, overrides.ErrTooMany):
		refuse(w, http.StatusConflict, err)
	case err != nil:
		refuse(w, http.StatusServiceUnavailable, err)
	default:
		answer(w, http.StatusOK, told(&o, nil))
	}
}

// check reports what is wrong with an override, by itself or with these rules.
func check(rules *descriptors.Ruleset, o *overrides.Override, limit string) error {
	switch {
	case o.Kind == descriptors.OverrideLimit:
		if err := o.SetLimit(limit); err != nil {
			return err
		}
	case limit != "":
		return errors.New("a limit is for overrides of the kind limit only")
	}
	if err := o.Validate(); err != nil {
		return err
	}
	_, problems := rules.WithOverrides([]descriptors.Override{o.Override})
	return problems[0]
}

func (a *api) unsetOverride(w http.ResponseWriter, r *http.Request, by string) {
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	switch err := a.Overrides.Unset(ctx, r.PathValue("id"), by); {
	case errors.Is(err, overrides.ErrUnknown):
		refuse(w, http.StatusNotFound, errors.New("there is no override of this ID; it may have expired"))
	case err != nil:
		refuse(w, http.StatusServiceUnavailable, err)
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}
