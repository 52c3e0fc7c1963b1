package descriptors_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
)

func TestExplanationsTellEachLevel(t *testing.T) {
	rules := compile(t, descriptors.Options{}, matchRules)
	for _, c := range []struct{ entries, want string }{
		{"a=one sub=vip", "a exact d.a_one rules.yaml:7, sub exact d.a_one.sub_vip rules.yaml:12"},
		{"a=two other=x", "a any d.a rules.yaml:13, other any d.a.other rules.yaml:14"},
		{"path=/api/x/edit", "path wildcard d.path_/api/*/edit rules.yaml:17"},
		{"ip=1 sub=x", "ip any d.ip rules.yaml:4, sub none"},
		{"sub=x a=one", "sub none"},
	} {
		var got []string
		for _, l := range rules.Explain("d", entries(c.entries)).Levels {
			got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", l.Key, l.Match, l.Path, l.At)))
		}
		if text := strings.Join(got, ", "); text != c.want {
			t.Errorf("%s: %s, want %s", c.entries, text, c.want)
		}
	}
}

func TestExplanationsTellWhyOtherRulesDoNotMatch(t *testing.T) {
	rules := compile(t, descriptors.Options{}, matchRules)
	x := rules.Explain("d", entries("path=/api/x/edit"))
	want := []descriptors.Other{
		{Path: "d.path_/api/*", At: "rules.yaml:15", Why: "it matches as well, and comes later"},
		{Path: "d.path_*", At: "rules.yaml:18", Why: "it matches as well, and comes later"},
		{Path: "d.path_/api/admin/*", At: "rules.yaml:16", Why: "the wildcard doesn't match"},
	}
	if got := x.Levels[0].Others; !slices.Equal(got, want) {
		t.Errorf("the others are %v, want %v", got, want)
	}
	x = rules.Explain("d", entries("ip=FOE"))
	if got := x.Levels[0].Others[1]; got.Path != "d.ip_foe" || got.Why != "it differs in case" {
		t.Errorf("the nearest other is %v", x.Levels[0].Others)
	}
}

func TestExplanationsTellHowValuesWerePrepared(t *testing.T) {
	rules := compile(t, descriptors.Options{}, preparedRules)
	for _, c := range []struct{ entries, value, prepared string }{
		{"ip=10.1.2.3", "10.1.2.0/24", "ip_mask /24, /64"},
		{"path=/login?x=1", "/login", "strip_query"},
		{"email=ANN@X.org", rules.Explain("d", entries("email=ann@x.org")).Levels[0].Value, "lowercase, hash"},
	} {
		l := rules.Explain("d", entries(c.entries)).Levels[0]
		if l.Value != c.value || l.Prepared != c.prepared || l.Key+"="+l.Sent != c.entries {
			t.Errorf("%s: %+v", c.entries, l)
		}
	}
}

const whyRules = `
domain: d
keys:
  host: {lowercase: true}
  secret: {hash: true}
descriptors:
  - key: a
    value: x
    descriptors: [{key: b, rate_limit: &one {unit: hour, requests_per_unit: 1}}]
  - key: a
    rate_limit: *one
    descriptors:
      - key: c
        rate_limit: *one
        descriptors: [{key: d, rate_limit: *one}]
  - {key: tenant, rate_limit: *one}
  - {key: path, value: /login, rate_limit: *one}
  - {key: path, value: "/api/*", rate_limit: *one}
  - {key: path, value: "/Static/*", rate_limit: *one}
  - {key: authority, value: example.com, rate_limit: *one}
  - {key: net, value: 10.0.0.0/8, rate_limit: *one}
  - {key: host, value: "*.Example.com:*", rate_limit: *one}
  - {key: host, value: a, rate_limit: *one}
  - {key: secret, value: s3cret, rate_limit: *one}
`

func TestWhyNothingMatches(t *testing.T) {
	rules := compile(t, descriptors.Options{}, whyRules)
	for _, c := range []struct{ domain, entries, want string }{
		{"D", "a=x", "no rules for this domain: did you mean `d`? It differs in case"},
		{"other", "a=x", "no rules for this domain: there is `d`"},
		{"d", "Tenant=x", "did you mean `tenant`? It differs in case"},
		{"d", "tennant=x", "did you mean `tenant`?"},
		{"d", "a=x c=1", "d.a.c would match, and d.a_x, which matches `a` more closely, hides it: there is no way back; repeat `c` there"},
		{"d", "c=1 a=y", "in the order `a`, `c` it matches d.a.c"},
		{"d", "d=1 c=1 a=y", "in the order `a`, `c`, `d` it matches d.a.c.d"},
		{"d", "a=y tenant=t", "`tenant` exists one level up, beside `a`: send it in a descriptor of its own"},
		{"d", "a=y c=1 tenant=t", "`tenant` exists 2 levels up, beside `a`: send it in a descriptor of its own"},
		{"d", "tenant=t zone=1", "the rules end after entry 1; a descriptor must be as deep as its rule; without `zone` it matches d.tenant"},
		{"d", "zone=1 tenant=t", "no key `zone` at entry 1; without `zone` it matches d.tenant"},
		{"d", "c=1", "`c` stands below d.a"},
		{"d", "generic_key=c", "no key `generic_key` at entry 1; Envoy calls an entry so unless its action has a descriptor_key"},
		{"d", "path=/login?x=1", "`path` has no rule for this value: without its query it would match d.path_/login; keys: {path: {strip_query: true}} cuts that off"},
		{"d", "path=/login/", ": without the slash at its end it would match d.path_/login; list both in values"},
		{"d", "path=/api", ": with a slash at its end it would match d.path_/api/*; list both in values"},
		{"d", "path=/Login", ": it differs in case from `/login`; keys: {path: {lowercase: true}} evens that out"},
		{"d", "path=/static/x", ": it differs in case from `/Static/*`; keys: {path: {lowercase: true}} evens that out"},
		{"d", "path=/logni", ": did you mean `/login`?"},
		{"d", "path=/apo/orders", ": it nearly matches `/api/*`"},
		{"d", "authority=example.com:443", ": without its port it would match d.authority_example.com; list both in values"},
		{"d", "net=10.1.2.3", ": it is in `10.0.0.0/8`, which is a network in cidrs only, and plain text in value"},
		{"d", "secret=S3cret", ": values of it are hashed (keys), and only equal ones have equal hashes"},
		{"d", "", "an empty descriptor has no limit; Envoy sends one if skip_if_absent leaves out all of its entries"},
		{"d", "a=x", "the rules go on below it with `b`; a descriptor must be as deep as its rule"},
		{"d", strings.Repeat("tenant=y ", 100), "the rules end after entry 1"},
		{"d", "\x01\xff" + strings.Repeat("k", 1000) + "=x", "no key `??kkkk"},
	} {
		if got := rules.Explain(c.domain, entries(c.entries)).Why; !strings.Contains(got, c.want) || len(got) > 400 {
			t.Errorf("%.60s %.60s: %s\nwant %s", c.domain, c.entries, got, c.want)
		}
	}
}

func TestWhyTellsOfValuesThatWerePreparedOtherwise(t *testing.T) {
	rules := compile(t, descriptors.Options{}, `
domain: d
keys: {path: {strip_query: true}}
descriptors: [{key: path, value: "*?debug=*", rate_limit: {unit: hour, requests_per_unit: 1}}]
`)
	want := "as it was sent it would match d.path_*?debug=*, and is prepared before (keys: strip_query)"
	if got := rules.Explain("d", entries("path=/x?debug=1")).Why; !strings.Contains(got, want) {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestAHintIsNotLookedForForEver is about rules with thousands of ways for one descriptor, none of which is as deep.
func TestAHintIsNotLookedForForEver(t *testing.T) {
	below := ""
	for range 12 {
		const two = "[{key: k, rate_limit: %[2]s%[1]s}, {key: k, value: \"x*\", rate_limit: %[2]s%[1]s}]"
		below = ", descriptors: " + fmt.Sprintf(two, below, "{unit: hour, requests_per_unit: 1}")
	}
	rules := compile(t, descriptors.Options{}, "domain: d\n"+strings.TrimPrefix(below, ", "))
	why := rules.Explain("d", entries(strings.Repeat("k=x ", 12)+"z=1")).Why
	if !strings.HasPrefix(why, "the rules end after entry 12;") {
		t.Errorf("why: %s", why)
	}
}

// drawRules are a few levels of keys with values of all kinds.
func drawRules(t *rapid.T, depth int) string {
	var b strings.Builder
	seen := map[string]bool{}
	indent := strings.Repeat("    ", 3-depth)
	for range rapid.IntRange(1, 4).Draw(t, "rules") {
		key := rapid.SampledFrom([]string{"a", "b", "A"}).Draw(t, "key")
		value := rapid.SampledFrom([]string{
			"", "value: x, ", "value: X, ", `value: "x*", `, `value: "*y", `, "values: [y, z], ", "cidrs: [10.0.0.0/8], ",
		}).Draw(t, "value")
		if seen[key+value] {
			continue
		}
		seen[key+value] = true
		fmt.Fprintf(&b, "%s- {key: %s, %s", indent, key, value)
		if rapid.Bool().Draw(t, "limited") {
			b.WriteString("rate_limit: {unit: hour, requests_per_unit: 1}, ")
		}
		if depth > 0 && rapid.Bool().Draw(t, "nested") {
			fmt.Fprintf(&b, "descriptors: [\n%s%s]", strings.ReplaceAll(drawRules(t, depth-1), "- {", "{"), indent)
		}
		b.WriteString("},\n")
	}
	return b.String()
}

// TestExplainAgreesWithMatch is about any rules and descriptors. No words tell a value.
func TestExplainAgreesWithMatch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keys := rapid.SampledFrom([]string{"", "keys: {a: {lowercase: true}, b: {ip_mask: {v4: 4}}, A: {hash: true}}\n"}).Draw(t, "keys")
		text := "domain: d\ndescriptors: [\n" + strings.ReplaceAll(drawRules(t, 3), "- {", "{") + "]\n"
		compiled := func(text string) (*descriptors.Ruleset, bool) {
			rules, problems := descriptors.Compile([]descriptors.File{{Name: "f.yaml", Data: []byte(text)}}, descriptors.Options{})
			return rules, !descriptors.HasErrors(problems)
		}
		rules, ok := compiled(keys + text)
		if ok {
			text = keys + text
		} else if rules, ok = compiled(text); !ok { // with keys, two may hash alike, and no wildcard may be hashed
			t.Fatalf("not taken:\n%s", text)
		}
		var sent []descriptors.Entry
		for range rapid.IntRange(0, 4).Draw(t, "entries") {
			sent = append(sent, descriptors.Entry{
				Key:   rapid.SampledFrom([]string{"a", "b", "A", "c"}).Draw(t, "sent key"),
				Value: rapid.SampledFrom([]string{"x", "X", "xSECRETy", "y", "z", "10.1.2.3", "SECRET"}).Draw(t, "sent value"),
			})
		}
		before := slices.Clone(sent)
		x := rules.Explain("d", sent)
		if !slices.Equal(sent, before) {
			t.Fatal("the entries were changed")
		}
		prepared := slices.Clone(sent)
		rules.Domain("d").Prepare(prepared)
		if want := rules.Domain("d").Match(prepared); x.Rule != want {
			t.Fatalf("%v of\n%s\nis explained as %+v, and matches %+v", sent, text, x, want)
		}
		if (x.Why == "") != (x.Rule != nil) || rules.Why("d", prepared) == "" != (x.Rule != nil) {
			t.Errorf("why %v matches nothing in\n%s\n%q", sent, text, x.Why)
		}
		if x.Rule != nil && (len(x.Levels) != len(sent) || x.Levels[len(sent)-1].Path != x.Rule.Path) {
			t.Errorf("%s is matched by levels %+v", x.Rule.Path, x.Levels)
		}
		if strings.Contains(x.Why, "SECRET") {
			t.Errorf("a value is told of: %s", x.Why)
		}
	})
}
