package descriptors_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

func readFile(t testing.TB, name string) descriptors.File {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return descriptors.File{Name: filepath.Base(name), Data: data}
}

func glob(t testing.TB, pattern string) []string {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil || len(names) == 0 {
		t.Fatalf("%s: %d files, %v", pattern, len(names), err)
	}
	return names
}

// Each bad or doubtful file says in its first line how one of its problems, as it is printed, goes on after the
// file's name.
func TestEveryBadFileNamesItsProblem(t *testing.T) {
	for _, name := range glob(t, "testdata/bad/*.yaml") {
		t.Run(filepath.Base(name), func(t *testing.T) {
			rules, problems := namesItsProblem(t, name)
			if !descriptors.HasErrors(problems) || rules.Limits != 0 {
				t.Error("the file is used all the same")
			}
		})
	}
}

func TestEveryDoubtfulFileIsWarnedOfAndUsed(t *testing.T) {
	for _, name := range glob(t, "testdata/doubtful/*.yaml") {
		t.Run(filepath.Base(name), func(t *testing.T) {
			_, problems := namesItsProblem(t, name)
			if descriptors.HasErrors(problems) || len(problems) != 1 {
				t.Errorf("the problems are %v", problems)
			}
		})
	}
}

func namesItsProblem(t *testing.T, name string) (*descriptors.Ruleset, []descriptors.Problem) {
	t.Helper()
	f := readFile(t, name)
	first, _, _ := strings.Cut(string(f.Data), "\n")
	want := strings.TrimPrefix(first, "# want: ")
	if strings.HasPrefix(want, ":") {
		want = f.Name + want
	}
	rules, problems := descriptors.Compile([]descriptors.File{f}, descriptors.Options{})
	if !slices.ContainsFunc(problems, func(p descriptors.Problem) bool { return strings.Contains(p.String(), want) }) {
		t.Errorf("want %s\ngot", want)
		for _, p := range problems {
			t.Error(p)
		}
	}
	return rules, problems
}

func TestOfAFileThatIsNotReadToItsEndNothingElseIsSaid(t *testing.T) {
	text := "domain: d\ndescriptors:\n  - &n0 {key: n0, rate_limit: {unit: hour, requests_per_unit: 3}}\n"
	for i := range 7 {
		text += fmt.Sprintf("  - &n%d {key: n%[1]d, descriptors: [", i+1)
		for j := range 10 {
			text += fmt.Sprintf("{key: k%d, descriptors: [*n%d]}, ", j, i)
		}
		text += "]}\n"
	}
	_, problems := descriptors.Compile([]descriptors.File{{Name: "a.yaml", Data: []byte(text)}}, descriptors.Options{})
	if len(problems) != 1 || !strings.Contains(problems[0].Text, "the aliases of this file expand to more than") {
		t.Errorf("the problems are %v", problems)
	}
}

func TestInFileOrderAHiddenWildcardIsNeverReached(t *testing.T) {
	_, problems := descriptors.Compile([]descriptors.File{{Name: "a.yaml", Data: []byte(`
domain: shop
descriptors:
  - {key: path, value: "/api/*", rate_limit: {unit: hour, requests_per_unit: 3}}
  - {key: path, value: "/api/admin/*", rate_limit: {unit: hour, requests_per_unit: 3}}
`)}}, descriptors.Options{FileOrder: true})
	want := "a.yaml:5:6: warning: shop.path_/api/admin/*: never reached: shop.path_/api/* comes first and matches all of it"
	if !strings.Contains(fmt.Sprint(problems), want) {
		t.Errorf("the problems are %v", problems)
	}
}

func TestEveryGoodFileHasNoProblem(t *testing.T) {
	for _, name := range glob(t, "testdata/good/*.yaml") {
		_, problems := descriptors.Compile([]descriptors.File{readFile(t, name)}, descriptors.Options{})
		for _, p := range problems {
			t.Error(p)
		}
	}
}

// TestTheRulesOfTheRepositoryCompileTogether compiles what `envoy-rls serve` has without any settings.
func TestTheRulesOfTheRepositoryCompileTogether(t *testing.T) {
	files, err := descriptors.ReadFiles([]string{"../../config"})
	if err != nil {
		t.Fatal(err)
	}
	rules, problems := descriptors.Compile(files, descriptors.Options{})
	for _, p := range problems {
		t.Error(p)
	}
	// One has defaults for the domains of others, and none of its own.
	if len(files) < 2 || len(rules.Sorted()) != len(files)-1 {
		t.Errorf("%d files make %d domains", len(files), len(rules.Sorted()))
	}
}

func compile(t testing.TB, o descriptors.Options, rules string) *descriptors.Ruleset {
	t.Helper()
	rs, problems := descriptors.Compile([]descriptors.File{{Name: "rules.yaml", Data: []byte(rules)}}, o)
	for _, p := range problems {
		if p.Severity == descriptors.Error {
			t.Error(p)
		}
	}
	return rs
}

func TestAllProblemsAreReportedAtOnce(t *testing.T) {
	_, problems := descriptors.Compile([]descriptors.File{{Name: "a.yaml", Data: []byte(`
domain: shop
descriptors:
  - key: a
    rate_limit: {unit: fortnight}
  - value: x
  - key: b
    shadow: true
`)}}, descriptors.Options{})
	want := []string{"unknown unit fortnight", "requests_per_unit is missing", "needs a key", "did you mean shadow_mode"}
	for _, w := range want {
		if !slices.ContainsFunc(problems, func(p descriptors.Problem) bool { return strings.Contains(p.Text, w) }) {
			t.Errorf("no problem says %q", w)
		}
	}
	if !slices.IsSortedFunc(problems, func(a, b descriptors.Problem) int { return a.Line - b.Line }) {
		t.Errorf("the problems are not in order of lines: %v", problems)
	}
}

func TestABadFileKeepsNoGoodOneOut(t *testing.T) {
	files := []descriptors.File{
		{Name: "b.yaml", Data: []byte("domain: shop\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1}}]")},
		{Name: "c.yaml", Data: []byte("domain: other\ndescriptors: [{kee: a}]")},
		{Name: "z.yaml", Data: []byte("domain: shop")},
	}
	rules, problems := descriptors.Compile(files, descriptors.Options{})
	if rules.Domain("shop") == nil || rules.Limits != 1 || rules.Domain("other") != nil {
		t.Errorf("limits %d", rules.Limits)
	}
	text := fmt.Sprint(problems)
	if !strings.Contains(text, `z.yaml:1:9: domain: domain "shop" is already at b.yaml:1:9; put both into one file, or merge domains`) {
		t.Errorf("the problems are %s", text)
	}
}

func TestEqualRulesHaveEqualHashes(t *testing.T) {
	a, b := descriptors.File{Name: "a", Data: []byte("domain: a")}, descriptors.File{Name: "b", Data: []byte("domain: b")}
	hash := func(o descriptors.Options, files ...descriptors.File) string {
		rules, _ := descriptors.Compile(files, o)
		return rules.Hash
	}
	same := hash(descriptors.Options{}, a, b)
	if hash(descriptors.Options{}, b, a) != same {
		t.Error("the order of files changes the hash")
	}
	if hash(descriptors.Options{}, a) == same || hash(descriptors.Options{FileOrder: true}, a, b) == same {
		t.Error("other rules or options have the same hash")
	}
}

func TestPoliciesComeFromTheRuleThenTheFileThenTheSettings(t *testing.T) {
	o := descriptors.Options{Defaults: descriptors.Defaults{CountDenied: true, OnStoreFailure: limiter.FailDeny}}
	rules := compile(t, o, `
domain: shop
defaults: {on_store_failure: allow}
descriptors:
  - {key: plain, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: own, count_denied: false, on_store_failure: error, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: both, shadow_mode: true, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}
`)
	match := func(key string) *descriptors.Rule {
		return rules.Domain("shop").Match([]descriptors.Entry{{Key: key, Value: "x"}})
	}
	if r := match("plain"); r.Charge != limiter.ChargeDenied || r.OnFailure != limiter.FailAllow {
		t.Errorf("plain: %+v", r)
	}
	if r := match("own"); r.Charge != limiter.Together || r.OnFailure != limiter.FailError {
		t.Errorf("own: %+v", r)
	}
	if r := match("both"); r.Role != limiter.Shadow {
		t.Errorf("shadow beats quota: %+v", r)
	}
}

func FuzzCompile(f *testing.F) {
	for _, pattern := range []string{"testdata/good/*.yaml", "testdata/bad/*.yaml", "../../config/*.yaml", "../../config/examples/*.yaml"} {
		for _, name := range glob(f, pattern) {
			if file := readFile(f, name); len(file.Data) < 2000 && !strings.Contains(name, "bomb") {
				f.Add(file.Data)
			}
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		rules, problems := descriptors.Compile([]descriptors.File{{Name: "f", Data: data}}, descriptors.Options{})
		if descriptors.HasErrors(problems) == (rules.Limits > 0) && rules.Limits > 0 {
			t.Error("a file with errors is used")
		}
		for d := range rules.Domains {
			d.Match([]descriptors.Entry{{Key: "a", Value: "x"}, {Key: "b", Value: ""}})
			rules.Unmatched(d.Name, []descriptors.Entry{{Key: "key", Value: "value"}})
			rules.Explain(d.Name, []descriptors.Entry{{Key: "b", Value: "x"}, {Key: "a", Value: "10.0.0.1"}, {Key: "a", Value: "/x?y"}})
		}
	})
}
