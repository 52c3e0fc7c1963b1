package descriptors

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// CounterName is what a counter's name says, as Counter.AppendName makes it.
type CounterName struct {
	// Hash is in the place of all else but the algorithm and period in a name that was too long, and else "".
	Hash string
	// Overflow is the path of the rule whose values that are too many share the counter, or "".
	Overflow string
	Domain   string
	// Entries are prepared. The value of one that stands for all values of a pattern is the pattern.
	Entries []Entry
	// Patterns tells of each entry whether its value is a pattern.
	Patterns  []bool
	Algorithm limiter.Algorithm
	Period    time.Duration
}

// HashedName is what the names of counters begin with that are hashed.
const HashedName = "#"

// DomainName is what the names of a domain's counters begin with, unless they are hashed.
func DomainName(domain string) string { return string(appendPart(nil, domain)) }

// ParseCounterName reads the name of a counter. ok is false for what is none.
func ParseCounterName(name string) (n CounterName, ok bool) {
	slash := strings.LastIndexByte(name, '/')
	if slash < 0 || !n.parseLimit(name[slash+1:]) {
		return n, false
	}
	rest := name[:slash]
	if hash, hashed := strings.CutPrefix(rest, HashedName); hashed {
		n.Hash = hash
		return n, len(hash) == hashLength && strings.Trim(hash, "0123456789abcdef") == ""
	}
	if n.Domain, rest, ok = cutPart(rest); !ok {
		return n, false
	}
	if overflow, shared := strings.CutPrefix(rest, "!"); shared {
		n.Overflow, rest, ok = cutPart(overflow)
		return n, ok && rest == ""
	}
	for rest != "" && ok {
		rest, ok = n.parseEntry(rest)
	}
	return n, ok
}

// hashLength is the length of a hash in a name, in hex.
const hashLength = 32

func (n *CounterName) parseLimit(text string) bool {
	digits := len(strings.TrimRight(text, "0123456789"))
	seconds, err := strconv.ParseInt(text[digits:], 10, 64)
	algorithm, unknown := limiter.ParseAlgorithm(text[:digits])
	if err != nil || unknown != nil || seconds < 1 || seconds > int64(limiter.MaxPeriod/time.Second) {
		return false
	}
	n.Algorithm, n.Period = algorithm, time.Duration(seconds)*time.Second
	return true
}

func (n *CounterName) parseEntry(text string) (rest string, ok bool) {
	key, rest, ok := cutPart(text)
	if !ok || rest == "" || rest[0] != '=' && rest[0] != '~' {
		return "", false
	}
	pattern := rest[0] == '~'
	value, rest, ok := cutPart(rest[1:])
	n.Entries, n.Patterns = append(n.Entries, Entry{key, value}), append(n.Patterns, pattern)
	return rest, ok
}

// cutPart reads what appendPart appends.
func cutPart(text string) (part, rest string, ok bool) {
	digits, rest, found := strings.Cut(text, ":")
	n, err := strconv.ParseUint(digits, 10, 31)
	if !found || err != nil || strconv.FormatUint(n, 10) != digits || uint64(len(rest)) < n {
		return "", "", false
	}
	return rest[:n], rest[n:], true
}

// String is the counter in words that can be printed anywhere: what a client chose is quoted where it holds more than
// plain letters.
func (n *CounterName) String() string {
	switch {
	case n.Hash != "":
		return HashedName + n.Hash + " (a long name)"
	case n.Overflow != "":
		return "all other values of " + n.Overflow
	case len(n.Entries) == 0:
		return "(no entries)"
	}
	words := make([]string, len(n.Entries))
	for i, e := range n.Entries {
		words[i] = fmt.Sprintf("%s=%s", Printable(e.Key), Printable(e.Value))
	}
	return strings.Join(words, ",")
}

// Printable is text as it is if it can be printed and read without doubt, else in quotes and escaped.
func Printable(text string) string {
	if text == "" || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("\"`\\,=", r) }) {
		return strconv.QuoteToASCII(text)
	}
	return text
}

// RuleOf is the rule whose counter a name is, by the rules that are now in the domain, without overrides; or nil: a request
// brought the limit along, or the rule is gone.
func (d *Domain) RuleOf(n *CounterName) *Rule {
	if n.Overflow == "" && !slices.Contains(n.Patterns, true) {
		return d.Match(n.Entries)
	}
	best, bestValues := (*Rule)(nil), -1
	for _, r := range d.rules {
		if n.Overflow != "" && n.Overflow == r.Path {
			return r
		}
		if values, ok := r.shares(n); ok && values > bestValues {
			best, bestValues = r, values
		}
	}
	return best
}

// shares tells whether a name with patterns may be of r's, and how many values in it r has word for word.
func (r *Rule) shares(n *CounterName) (values int, ok bool) {
	if len(n.Entries) != len(r.levels) || n.Overflow != "" {
		return 0, false
	}
	for i, e := range n.Entries {
		l := &r.levels[i]
		switch {
		case l.key != e.Key || l.shared != n.Patterns[i]:
			return 0, false
		case l.value == e.Value:
			values++
		case l.shared || l.value != "" && !l.several:
			return 0, false
		}
	}
	return values, true
}

// LimitOf is the limit of r that a name's counter is under, or nil: it has changed its algorithm or period since.
func (r *Rule) LimitOf(n *CounterName) *Limit {
	for i := range r.Limits {
		if l := &r.Limits[i]; l.Algorithm == n.Algorithm && l.Period == n.Period {
			return l
		}
	}
	return nil
}

// Fits tells whether the counter's descriptor has all of these entries, which are prepared.
func (n *CounterName) Fits(match []Entry) bool { return (&overridden{match: match}).fits(n.Entries) }
