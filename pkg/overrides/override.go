// Package overrides knows what operators have put in the place of rules for a while, the same on all replicas: emergency
// levers, each with an end.
package overrides

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
)

// MaxLifetime is the longest that an override may last.
const MaxLifetime = 24 * time.Hour

// The bounds of what an override holds.
const (
	maxText    = 1024 // bytes of a domain, a path or a reason
	maxMatches = 16
	maxNoted   = 8 << 10 // bytes of all of it
)

// Override is an override of rules, and how it came to be. Its ID is that of its domain, rule and matches: another one of the
// same takes its place.
type Override struct {
	descriptors.Override
	// Reason is why, and By who, as far as is known.
	Reason, By string
	// Until is when it ends, by the clock of the Set that it is from.
	Until time.Time

	at int64 // when it was set, in ms, by the setter's clock
}

// noted is an Override as replicas tell each other.
type noted struct {
	Domain string              `json:"domain"`
	Rule   string              `json:"rule"`
	Match  []descriptors.Entry `json:"match,omitempty"`
	Kind   string              `json:"kind"`
	Limit  string              `json:"limit,omitempty"`
	Reason string              `json:"reason,omitempty"`
	By     string              `json:"by,omitempty"`
	At     int64               `json:"at"`
}

// Validate reports what is wrong with o by itself, whatever the rules, or nil.
func (o *Override) Validate() error {
	texts := []string{o.Domain, o.Rule, o.Reason, o.By}
	for _, e := range o.Match {
		texts = append(texts, e.Key, e.Value)
	}
	switch {
	case o.Domain == "":
		return errors.New("domain is missing")
	case o.Rule == "":
		return errors.New("rule is missing: the path of a rule, as metrics and `envoy-rls check` name it")
	case len(o.Match) > maxMatches:
		return fmt.Errorf("%d matches are more than %d", len(o.Match), maxMatches)
	case slices.ContainsFunc(texts, func(s string) bool { return len(s) > maxText || !utf8.ValidString(s) }):
		return fmt.Errorf("a text has more than %d bytes, or is not UTF-8", maxText)
	case len(o.text()) > maxNoted:
		return fmt.Errorf("it comes to more than %d bytes", maxNoted)
	}
	return nil
}

// id names what o is about.
func (o *Override) id() string {
	match := slices.SortedFunc(slices.Values(o.Match), func(a, b descriptors.Entry) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Value, b.Value))
	})
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q", o.Domain, o.Rule, match))
	return hex.EncodeToString(sum[:4])
}

// text is o as a note, on one line.
func (o *Override) text() string {
	n := noted{o.Domain, o.Rule, o.Match, string(o.Kind), "", o.Reason, o.By, o.at}
	if o.Kind == descriptors.OverrideLimit {
		n.Limit = o.LimitText()
	}
	text, _ := json.Marshal(n) // texts and numbers can always be
	return string(text)
}

// parse reads a note of another replica.
func parse(id, text string) (Override, error) {
	var n noted
	if err := json.Unmarshal([]byte(text), &n); err != nil {
		return Override{}, fmt.Errorf("reading an override: %w", err)
	}
	o := Override{Reason: n.Reason, By: n.By, at: n.At, Override: descriptors.Override{
		ID: id, Domain: n.Domain, Rule: n.Rule, Match: n.Match, Kind: descriptors.OverrideKind(n.Kind),
	}}
	if o.Kind == descriptors.OverrideLimit {
		if err := o.SetLimit(n.Limit); err != nil {
			return Override{}, err
		}
	}
	return o, o.Validate()
}

// LimitText is the limit of an override that has one, as SetLimit reads it.
func (o *Override) LimitText() string {
	if o.Multiplier > 1 {
		return fmt.Sprintf("%d/%d%s", o.Requests, o.Multiplier, o.Unit)
	}
	return fmt.Sprintf("%d/%s", o.Requests, o.Unit)
}

// SetLimit makes o a limit such as 500/second or 5/15minute.
func (o *Override) SetLimit(text string) error {
	number, period, _ := strings.Cut(text, "/")
	name := strings.TrimLeft(period, "0123456789")
	unit, known := descriptors.ParseUnit(name)
	requests, err := strconv.ParseUint(number, 10, 32)
	multiplier, multiplierErr := strconv.ParseUint(cmp.Or(period[:len(period)-len(name)], "1"), 10, 32)
	if err != nil || multiplierErr != nil || !known || multiplier == 0 {
		return fmt.Errorf("limit %q is not a number per unit, such as 500/second or 5/15minute; units are second to year", text)
	}
	o.Kind, o.Requests, o.Unit, o.Multiplier = descriptors.OverrideLimit, uint32(requests), unit, uint32(multiplier)
	return nil
}

// MatchText is what o is narrowed to, in words that can be printed anywhere, or "".
func (o *Override) MatchText() string {
	words := make([]string, len(o.Match))
	for i, e := range o.Match {
		words[i] = descriptors.Printable(e.Key) + "=" + descriptors.Printable(e.Value)
	}
	return strings.Join(words, ",")
}

// attributes are o for the log.
func (o *Override) attributes(more ...any) []any {
	list := []any{"id", o.ID, "domain", o.Domain, "rule", o.Rule}
	if len(o.Match) > 0 {
		list = append(list, "match", o.MatchText())
	}
	return append(append(list, "override", o.Words()), more...)
}

func (o *Override) left(now time.Time) slog.Attr {
	return slog.String("for", o.Until.Sub(now).Round(time.Second).String())
}
