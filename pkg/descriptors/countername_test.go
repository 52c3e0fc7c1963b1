package descriptors_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

const countedRules = `
domain: d
descriptors:
  - {key: user, rate_limit: {unit: minute, requests_per_unit: 3}}
  - {key: user, value: ann, rate_limit: {unit: minute, requests_per_unit: 4}}
  - {key: file, value: "*.png", share_threshold: true, rate_limit: {unit: minute, requests_per_unit: 5}}
  - {key: file, value: "a*", share_threshold: true, rate_limit: {unit: minute, requests_per_unit: 6}}
  - key: file
    value: "*.png"
    share_threshold: true
    descriptors:
      - {key: user, rate_limit: {unit: minute, requests_per_unit: 7}}
      - {key: user, value: ann, rate_limit: {unit: minute, requests_per_unit: 8}}
`

// TestACounterNameTellsWhoseItIs goes from descriptors to names and back.
func TestACounterNameTellsWhoseItIs(t *testing.T) {
	domain := compile(t, descriptors.Options{Merge: true}, strings.Replace(countedRules, `  - {key: file, value: "*.png", share_threshold: true, rate_limit: {unit: minute, requests_per_unit: 5}}
`, "", 1)).Domain("d")
	for _, c := range []struct{ entries, words string }{
		{"user=bob", "user=bob"},
		{"user=ann", "user=ann"},
		{`user="x`, `user="\"x"`},
		{"file=abc", "file=a*"},
		{"file=x.png user=ann", "file=*.png,user=ann"},
		{"file=x.png user=bob", "file=*.png,user=bob"},
	} {
		list := entries(c.entries)
		rule := domain.Match(list)
		counter := descriptors.Counter{Domain: "d", Entries: list, Rule: rule}
		name, ok := descriptors.ParseCounterName(string(counter.AppendName(nil, &rule.Limits[0].Limit)))
		if !ok || name.Domain != "d" || name.String() != c.words || domain.RuleOf(&name) != rule || rule.LimitOf(&name) != &rule.Limits[0] {
			t.Errorf("%s: %+v of %v, %t", c.entries, name, domain.RuleOf(&name), ok)
		}
		counter.Overflow = true
		name, ok = descriptors.ParseCounterName(string(counter.AppendName(nil, &rule.Limits[0].Limit)))
		if !ok || domain.RuleOf(&name) != rule || name.String() != "all other values of "+rule.Path {
			t.Errorf("%s: too many: %+v, %t", c.entries, name, ok)
		}
	}
}

func TestALongCounterNameTellsOnlyItsLimit(t *testing.T) {
	counter := descriptors.Counter{Domain: "d", Entries: []descriptors.Entry{{Key: "k", Value: strings.Repeat("v", 200)}}}
	limit := &limiter.Limit{Algorithm: limiter.SlidingLog, Requests: 1, Period: time.Hour}
	name, ok := descriptors.ParseCounterName(string(counter.AppendName(nil, limit)))
	if !ok || name.Hash == "" || name.Algorithm != limiter.SlidingLog || name.Period != time.Hour || !strings.HasSuffix(name.String(), "(a long name)") {
		t.Errorf("%+v, %t", name, ok)
	}
}

func FuzzCounterNamesAreReadBack(f *testing.F) {
	f.Add("4:demo4:user=3:ann/fixed_window60", "demo", "user", "ann")
	f.Add("4:demo!9:demo.user/token_bucket1", "", "a/b", "\x00\n")
	f.Add("#00112233445566778899aabbccddeeff/sliding_log3600", "d", "", "")
	f.Add("01:d1:k~1:v/fixed_window0", "d", "9:", "~")
	f.Fuzz(func(t *testing.T, text, domain, key, value string) {
		if n, ok := descriptors.ParseCounterName(text); ok {
			if words := n.String(); strings.ContainsFunc(words, func(r rune) bool { return r < ' ' || r > '~' }) && n.Overflow == "" {
				t.Errorf("%q is printed as %q", text, words)
			}
		}
		list := []descriptors.Entry{{Key: key, Value: value}, {Key: value, Value: domain}}
		limit := &limiter.Limit{Requests: 1, Period: time.Minute}
		name := string(descriptors.Counter{Domain: domain, Entries: list}.AppendName(nil, limit))
		n, ok := descriptors.ParseCounterName(name)
		if !ok || n.Hash == "" && (n.Domain != domain || !slices.Equal(n.Entries, list)) {
			t.Errorf("%q is read back as %+v, %t", name, n, ok)
		}
	})
}
