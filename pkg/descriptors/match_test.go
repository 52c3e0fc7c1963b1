package descriptors_test

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// entries reads "a=1 b=2".
func entries(text string) []descriptors.Entry {
	var list []descriptors.Entry
	for _, word := range strings.Fields(text) {
		key, value, _ := strings.Cut(word, "=")
		list = append(list, descriptors.Entry{Key: key, Value: value})
	}
	return list
}

const matchRules = `
domain: d
descriptors:
  - {key: ip, rate_limit: {unit: hour, requests_per_unit: 10}}
  - {key: ip, value: friend}
  - {key: ip, value: foe, rate_limit: {unit: hour, requests_per_unit: 0}}
  - key: a
    value: one
    rate_limit: {unit: day, requests_per_unit: 15}
    descriptors:
      - {key: sub, rate_limit: {unit: hour, requests_per_unit: 5}}
      - {key: sub, value: vip, rate_limit: {unit: hour, requests_per_unit: 10}}
  - key: a
    descriptors: [{key: other, rate_limit: {unit: hour, requests_per_unit: 6}}]
  - {key: path, value: "/api/*", rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: path, value: "/api/admin/*", rate_limit: {unit: hour, requests_per_unit: 2}}
  - {key: path, value: "/api/*/edit", rate_limit: {unit: hour, requests_per_unit: 3}}
  - {key: path, value: "*", rate_limit: {unit: hour, requests_per_unit: 4}}
  - {key: mid, value: "one*two*tri", rate_limit: {unit: hour, requests_per_unit: 2}}
  - {key: "star*", rate_limit: {unit: hour, requests_per_unit: 2}}
  - {key: user, value: admin_x, rate_limit: {unit: hour, requests_per_unit: 2}}
`

func TestMatching(t *testing.T) {
	domain := compile(t, descriptors.Options{}, matchRules).Domain("d")
	for _, c := range []struct{ entries, want string }{
		{"ip=1", "d.ip"},
		{"ip=", "d.ip"},
		{"ip=foe", "d.ip_foe"},
		{"ip=friend", ""}, // an exact value without a limit is an exemption
		{"IP=1", ""},
		{"", ""},
		{"a=one", "d.a_one"},
		{"a=one sub=x", "d.a_one.sub"},
		{"a=one sub=vip", "d.a_one.sub_vip"},
		{"a=one other=x", ""}, // no way back to the a without a value
		{"a=two other=x", "d.a.other"},
		{"a=two", ""},
		{"ip=1 sub=x", ""}, // deeper than its rule
		{"sub=x a=one", ""},
		{"path=/api/x", "d.path_/api/*"},
		{"path=/api/admin/x", "d.path_/api/admin/*"},
		{"path=/api/admin/edit", "d.path_/api/admin/*"}, // the longest literal prefix
		{"path=/api/x/edit", "d.path_/api/*/edit"},      // then the most literal characters
		{"path=/other", "d.path_*"},
		{"path=", "d.path_*"},
		{"mid=onetwotri", "d.mid_one*two*tri"},
		{"mid=one1two2tri", "d.mid_one*two*tri"},
		{"mid=onetwotri2", ""},
		{"mid=onetri", ""},
		{"mid=onetritwo", ""},
		{"mid=onetwtri", ""},
		{"star*=x", "d.star*"}, // a star in a key is a star
		{"starry=x", ""},
		{"user_admin=x", ""}, // key and value are a pair, not one text
		{"user=admin_x", "d.user_admin_x"},
	} {
		got := ""
		if r := domain.Match(entries(c.entries)); r != nil {
			got = r.Path
		}
		if got != c.want {
			t.Errorf("%s matches %q, want %q", c.entries, got, c.want)
		}
	}
}

const preparedRules = `
domain: d
keys:
  ip: {ip_mask: {v4: 24, v6: 64}}
  path: {strip_query: true}
  email: {lowercase: true, hash: true}
descriptors:
  - {key: ip, cidrs: [10.0.0.0/8, "fd00::/8"], rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: ip, cidrs: [10.1.0.0/16], rate_limit: {unit: hour, requests_per_unit: 2}}
  - {key: ip, value: 10.1.2.0/24, rate_limit: {unit: hour, requests_per_unit: 3}}
  - {key: ip, rate_limit: {unit: hour, requests_per_unit: 4}}
  - {key: path, value: /login, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: path, values: [/a, /b], share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: path, value: "/*", rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: email, value: Ann@x.org, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: email, rate_limit: {unit: hour, requests_per_unit: 1}}
`

func TestPreparedValues(t *testing.T) {
	domain := compile(t, descriptors.Options{}, preparedRules).Domain("d")
	for _, c := range []struct{ entries, rule, value string }{
		{"ip=10.1.2.3", "d.ip_10.1.2.0/24", "10.1.2.0/24"},
		{"ip=10.1.3.3", "d.ip_{10.1.0.0/16}", "10.1.3.0/24"},
		{"ip=::ffff:10.9.3.3", "d.ip_{10.0.0.0/8,fd00::/8}", "10.9.3.0/24"},
		{"ip=fd00::1:2:3:4:5", "d.ip_{10.0.0.0/8,fd00::/8}", "fd00:0:0:1::/64"},
		{"ip=192.0.2.7", "d.ip", "192.0.2.0/24"},
		{"ip=unknown", "d.ip", "unknown"},
		{"ip=", "d.ip", ""},
		{"path=/login?x=1", "d.path_/login", "/login"},
		{"path=/b?x=1", "d.path_{/a,/b}", "/b"},
		{"path=/c", "d.path_/*", "/c"},
		{"email=ANN@x.org", "d.email_ann", ""},
		{"email=bob@x.org", "d.email", ""},
	} {
		list := entries(c.entries)
		domain.Prepare(list)
		r := domain.Match(list)
		if r == nil || !strings.HasPrefix(r.Path, c.rule) && !strings.HasPrefix(r.Path, "d.email_") {
			t.Errorf("%s matches %v, want %s", c.entries, r, c.rule)
		}
		if got := list[0].Value; c.value != "" && got != c.value || strings.Contains(got, "@") {
			t.Errorf("%s is prepared to %s, want %s", c.entries, got, c.value)
		}
	}
	a, b := entries("path=/a"), entries("path=/b")
	name := func(list []descriptors.Entry) string {
		return string(descriptors.Counter{Domain: "d", Entries: list, Rule: domain.Match(list)}.AppendName(nil, hourly))
	}
	if name(a) != name(b) {
		t.Error("the values of a shared list have two counters")
	}
}

func TestFilesWithoutRulesHaveDefaultsForTheDomainsOfOthers(t *testing.T) {
	files := []descriptors.File{
		{Name: "a.yaml", Data: []byte("domain: prod/web/https\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1}}]")},
		{Name: "b.yaml", Data: []byte("domain: test\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1}}]")},
		{Name: "c.yaml", Data: []byte("domains: [\"*\"]\ndefaults: {on_store_failure: deny, algorithm: sliding_log}")},
		{Name: "d.yaml", Data: []byte("domains: [\"prod/*/https\", other]\ndefaults: {algorithm: sliding_window, count_denied: true}")},
	}
	rules, problems := descriptors.Compile(files, descriptors.Options{})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	prod, test := rules.Domain("prod/web/https").Rules()[0], rules.Domain("test").Rules()[0]
	if prod.Limits[0].Algorithm != limiter.SlidingWindow || prod.Charge != limiter.ChargeDenied || prod.OnFailure != limiter.FailError {
		t.Errorf("prod: %+v", prod)
	}
	if test.Limits[0].Algorithm != limiter.SlidingLog || test.OnFailure != limiter.FailDeny {
		t.Errorf("test: %+v", test)
	}
}

// TestFilesWithoutRulesPrepareTheValuesOfOthers also where the others have keys of their own, or no rules at all.
func TestFilesWithoutRulesPrepareTheValuesOfOthers(t *testing.T) {
	files := []descriptors.File{
		{Name: "a.yaml", Generated: true, Data: []byte("domain: prod/web\ndescriptors: [{key: user, value: ANN, rate_limit: {unit: day, requests_per_unit: 1}}]")},
		{Name: "b.yaml", Data: []byte("domain: prod/own\nkeys: {user: {lowercase: true}}\ndescriptors: [{key: user, value: ANN, rate_limit: {unit: day, requests_per_unit: 1}}]")},
		{Name: "c.yaml", Data: []byte("domain: prod/none")},
		{Name: "d.yaml", Data: []byte("domains: [\"prod/*\"]\nkeys: {user: {lowercase: true, hash: true}, path: {strip_query: true}}")},
		{Name: "e.yaml", Data: []byte("domain: test\ndescriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 1}}]")},
	}
	rules, problems := descriptors.Compile(files, descriptors.Options{HashKey: descriptors.NewHashKey([]byte("secret"))})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	hashed := byHMAC([]byte("secret"), "ann")
	for domain, want := range map[string]string{
		"prod/web": "user=" + hashed + " path=/a", "prod/own": "user=ann path=/a", "prod/none": "user=" + hashed + " path=/a", "test": "user=Ann path=/a?b",
	} {
		list := entries("user=Ann path=/a?b")
		rules.Domain(domain).Prepare(list)
		if !slices.Equal(list, entries(want)) {
			t.Errorf("%s: %v, want %s", domain, list, want)
		}
		if r := rules.Domain(domain).Match(list[:1]); r == nil && domain != "prod/none" {
			t.Errorf("%s: no rule matches %v", domain, list[0])
		}
	}
}

func TestFilesWithoutRulesPartitionTheCountersOfOthers(t *testing.T) {
	files := []descriptors.File{
		{Name: "a.yaml", Generated: true, Data: []byte("domain: prod/web")},
		{Name: "b.yaml", Data: []byte("domain: prod/own\npartition_by: user")},
		{Name: "c.yaml", Data: []byte("domain: test")},
		{Name: "d.yaml", Data: []byte("domains: [\"prod/*\"]\npartition_by: tenant")},
	}
	rules, problems := descriptors.Compile(files, descriptors.Options{})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	for domain, want := range map[string]string{"prod/web": "acme", "prod/own": "ann", "test": ""} {
		if got := rules.Domain(domain).Partition(entries("tenant=acme user=ann")); got != want {
			t.Errorf("%s: %q, want %q", domain, got, want)
		}
	}
}

func TestTheFirstWildcardOfAFileWinsWhereAsked(t *testing.T) {
	domain := compile(t, descriptors.Options{FileOrder: true}, matchRules).Domain("d")
	if r := domain.Match(entries("path=/api/admin/x")); r.Path != "d.path_/api/*" {
		t.Errorf("it matches %s", r.Path)
	}
}

func TestMatchingAllocatesNothing(t *testing.T) {
	domain := compile(t, descriptors.Options{}, matchRules).Domain("d")
	list := entries("a=one sub=vip")
	if n := testing.AllocsPerRun(100, func() { domain.Match(list) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestUnmatchedNamesTheNearestRule(t *testing.T) {
	rules := compile(t, descriptors.Options{}, matchRules)
	for _, c := range []struct{ domain, entries, want string }{
		{"d", "Path=/x", "no rule matches Path=/x in domain d: did you mean `path`?"},
		{"d", "sub=x", "no rule matches sub=x in domain d: `sub` stands below d.a_one"},
		{"d", "ip=1 sub=x", "the rules end after entry 1; a descriptor must be as deep as its rule"},
		{"d", "a=two", "the rules go on below it with `other`; a descriptor must be as deep as its rule"},
		{"d", "a=one sbu=x", "did you mean `sub`?"},
		{"d", "user=admin-x", "`user` has no rule for this value: did you mean `admin_x`?"},
		{"d", "ip=friend", "the descriptor is known, and has no rate_limit"},
		{"d", "", "no rule matches a descriptor without entries in domain d"},
		{"D", "ip=1", "no rules for domain D: did you mean `d`?"},
	} {
		if got := rules.Unmatched(c.domain, entries(c.entries)); !strings.Contains(got, c.want) {
			t.Errorf("%s %s: %s, want %s", c.domain, c.entries, got, c.want)
		}
	}
}

var hourly = &limiter.Limit{Requests: 1, Period: 3600e9}

func TestCounterNames(t *testing.T) {
	rules := compile(t, descriptors.Options{}, `
domain: d
descriptors:
  - key: f
    value: "pub/*"
    share_threshold: true
    descriptors: [{key: g, rate_limit: {unit: hour, requests_per_unit: 1}}]
`)
	list := entries("f=pub/a g=1")
	rule := rules.Domain("d").Match(list)
	name := func(r *descriptors.Rule, list []descriptors.Entry, l *limiter.Limit) string {
		return string(descriptors.Counter{Domain: "d", Entries: list, Rule: r}.AppendName(nil, l))
	}
	if got := name(nil, entries("user=ann"), hourly); got != "1:d4:user=3:ann/fixed_window3600" {
		t.Errorf("the name is %s", got)
	}
	if got := name(rule, list, hourly); got != "1:d1:f~5:pub/*1:g=1:1/fixed_window3600" {
		t.Errorf("the shared name is %s", got)
	}
	if name(rule, list, hourly) != name(rule, entries("f=pub/b g=1"), hourly) {
		t.Error("two values of a shared pattern have two names")
	}
	if name(rule, list, hourly) == name(nil, entries("f=pub/* g=1"), hourly) {
		t.Error("a value that looks like the pattern has the pattern's name")
	}
	if other := (&limiter.Limit{Requests: 9, Period: 3600e9}); name(nil, list, hourly) != name(nil, list, other) {
		t.Error("an edit of the number starts a new count")
	}
	if other := (&limiter.Limit{Requests: 1, Period: 60e9}); name(nil, list, hourly) == name(nil, list, other) {
		t.Error("two periods have one name")
	}
	long := name(nil, entries("user="+strings.Repeat("x", 500)), hourly)
	if len(long) > 60 || !strings.HasPrefix(long, "#") {
		t.Errorf("the name of a long value is %s", long)
	}
}

// The fuzzer looks for two different inputs with one name. An input is cut at zero bytes into a domain, keys
// and values.
func FuzzCounterNamesNeverCollide(f *testing.F) {
	f.Add("d\x00user\x00x_role_admin", "d\x00user\x00x\x00role\x00admin")
	f.Add("d\x004:user\x003:ann", "d4:user\x003:ann\x00")
	f.Add("d\x00a\x00"+strings.Repeat("x", 200), "d#\x00a\x00"+strings.Repeat("x", 200))
	f.Fuzz(func(t *testing.T, a, b string) {
		ca, cb := cut(a), cut(b)
		same := string(ca.AppendName(nil, hourly)) == string(cb.AppendName(nil, hourly))
		if same != equal(ca, cb) {
			t.Errorf("%s and %s: same name %t", hex.EncodeToString([]byte(a)), hex.EncodeToString([]byte(b)), same)
		}
	})
}

func TestCounterNamesNeverCollide(t *testing.T) {
	text := rapid.StringOf(rapid.RuneFrom([]rune("\x00\x000123:=~#/ab")))
	rapid.Check(t, func(t *rapid.T) {
		a, b := cut(text.Draw(t, "a")), cut(text.Draw(t, "b"))
		if !equal(a, b) && string(a.AppendName(nil, hourly)) == string(b.AppendName(nil, hourly)) {
			t.Errorf("%+v and %+v have one name", a, b)
		}
	})
}

func cut(text string) descriptors.Counter {
	parts := strings.Split(text, "\x00")
	c := descriptors.Counter{Domain: parts[0]}
	for i := 1; i < len(parts); i += 2 {
		e := descriptors.Entry{Key: parts[i]}
		if i+1 < len(parts) {
			e.Value = parts[i+1]
		}
		c.Entries = append(c.Entries, e)
	}
	return c
}

func equal(a, b descriptors.Counter) bool {
	if a.Domain != b.Domain || len(a.Entries) != len(b.Entries) {
		return false
	}
	for i := range a.Entries {
		if a.Entries[i] != b.Entries[i] {
			return false
		}
	}
	return true
}

func TestMergedFilesAreOneDomain(t *testing.T) {
	a := descriptors.File{Name: "a.yaml", Data: []byte(`
domain: d
keys: {path: {strip_query: true}}
descriptors:
  - {key: path, value: "/api/*", rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: user, value: ann, rate_limit: {unit: hour, requests_per_unit: 2}}
`)}
	b := descriptors.File{Name: "b.yaml", Data: []byte(`
domain: d
descriptors:
  - {key: path, value: "/api/admin/*", rate_limit: {unit: hour, requests_per_unit: 3}}
  - {key: user, rate_limit: {unit: hour, requests_per_unit: 4}}
  - {key: ip, cidrs: [10.0.0.0/8], rate_limit: {unit: hour, requests_per_unit: 5}}
`)}
	c := descriptors.File{Name: "c.yaml", Data: []byte(`
domain: d
descriptors: [{key: user, value: ann, rate_limit: {unit: hour, requests_per_unit: 9}}]
`)}
	rules, problems := descriptors.Compile([]descriptors.File{a, b, c}, descriptors.Options{Merge: true})
	if want := `[c.yaml:2:9: domain: domain "d" is already at a.yaml:2:9; user_ann is in both]`; fmt.Sprint(problems) != want {
		t.Errorf("the problems are %v, want %s", problems, want)
	}
	for sent, want := range map[string]uint32{
		"path=/api/admin/x?q": 3, "path=/api/x": 1, "user=ann": 2, "user=bob": 4, "ip=10.1.1.1": 5,
	} {
		list := entries(sent)
		rules.Domain("d").Prepare(list)
		if r := rules.Domain("d").Match(list); r == nil || r.Limits[0].Requests != want {
			t.Errorf("%s matches %+v, want the limit of %d", sent, r, want)
		}
	}
	if rules.Limits != 5 {
		t.Errorf("there are %d limits", rules.Limits)
	}
}
