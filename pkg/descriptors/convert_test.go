package descriptors_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"pgregory.net/rapid"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
	"github.com/envoy-rls/envoy-rls/pkg/memstore"
	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

// compatDefaults are those of compat mode, under which refused requests cost and failures are errors, as they do in the
// replaced service.
var compatDefaults = descriptors.Defaults{CountDenied: true, OnStoreFailure: limiter.FailError}

// converted converts rules, checks that the replaced service and compat mode take the result, and returns it with what
// is lost.
func converted(t testing.TB, o descriptors.Options, files ...descriptors.File) ([]descriptors.File, []descriptors.Problem) {
	t.Helper()
	result, lost := descriptors.ToReplaced(files, o)
	if descriptors.HasErrors(lost) {
		return nil, lost
	}
	loaded(t, result)
	_, problems := descriptors.Compile(result, descriptors.Options{FileOrder: true, ForReplaced: true, Merge: o.Merge})
	if descriptors.HasErrors(problems) {
		t.Fatalf("compat mode refuses it: %v\n%s", problems, result[0].Data)
	}
	return result, lost
}

func FuzzWhatIsConvertedIsTaken(f *testing.F) {
	for _, pattern := range []string{"testdata/good/*.yaml", "testdata/doubtful/*.yaml", "../../config/examples/*.yaml"} {
		for _, name := range glob(f, pattern) {
			f.Add(readFile(f, name).Data)
		}
	}
	f.Add([]byte("domain: d\ndescriptors: [{key: a_b, value: c}, {key: a, values: [b_c, \"1.5\", \"yes\"]}, {key: 'a*', cidrs: [0.0.0.0/0, 1.2.3.4/31]}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		file := descriptors.File{Name: "fuzz.yaml", Data: data}
		once, lost := converted(t, descriptors.Options{}, file)
		again, _ := descriptors.ToReplaced([]descriptors.File{file}, descriptors.Options{})
		if len(once) == 1 && string(once[0].Data) != string(again[0].Data) {
			t.Errorf("one file gives\n%s\nand\n%s", once[0].Data, again[0].Data)
		}
		for _, p := range lost {
			if p.Severity == descriptors.Warning && len(once) == 1 && !strings.Contains(string(once[0].Data), "# Lost: ") {
				t.Errorf("%s is in no comment\n%s", p, once[0].Data)
			}
		}
	})
}

func TestAConvertedFileConvertsToItself(t *testing.T) {
	o := descriptors.Options{FileOrder: true, Defaults: compatDefaults}
	for _, name := range append(glob(t, "../../config/examples/*.yaml"), glob(t, "testdata/good/*.yaml")...) {
		first, _ := converted(t, descriptors.Options{}, readFile(t, name))
		if len(first) == 0 {
			continue
		}
		second, lost := converted(t, o, first...)
		if len(lost) > 0 || withoutComments(second[0]) != withoutComments(first[0]) {
			t.Errorf("%s: lost %v\n%s\nbecomes\n%s", name, lost, first[0].Data, second[0].Data)
		}
	}
}

// withoutComments is a file without its comments.
func withoutComments(f descriptors.File) string {
	lines := strings.Split(string(f.Data), "\n")
	return strings.Join(slices.DeleteFunc(lines, func(l string) bool { return strings.HasPrefix(strings.TrimSpace(l), "#") }), "\n")
}

// The values that requests have, and what rules say about them.
var (
	keys     = []string{"a", "b", "remote_address"}
	sent     = []string{"x", "xy", "xyz", "y", "10.1.2.3", "172.16.0.9", "172.31.9.9", "172.32.0.1", "yes", "1.5", ""}
	matchers = []string{
		"", "", "value: x", "value: xy", `value: "x*"`, `value: "*y"`, `value: "*"`, `value: "xy*"`, `value: "yes"`, `value: "1.5"`,
		`values: [x, "1.5"]`, "values: [y, xyz]", "cidrs: [10.0.0.0/8]", "cidrs: [172.16.0.0/12, 10.1.2.3/32]",
	}
	windows = []string{
		"unit: minute, requests_per_unit: 3", "unit: hour, requests_per_unit: 2", "unit: second, unit_multiplier: 60, requests_per_unit: 4",
		"unit: hour, unit_multiplier: 24, requests_per_unit: 1", "unit: day, requests_per_unit: 0", "unlimited: true",
	}
	flags = []string{"", "", "", "shadow_mode: true, ", "quota_mode: true, ", "exempt: true, "}
)

// randomRules are rules that can be converted without loss.
func randomRules(t *rapid.T) string {
	return "domain: d\ndescriptors:\n" + randomDescriptors(t, "  ", 2)
}

func randomDescriptors(t *rapid.T, indent string, depth int) string {
	var b strings.Builder
	seen := map[string]bool{}
	for range rapid.IntRange(1, 6).Draw(t, "descriptors") {
		key, matcher := rapid.SampledFrom(keys).Draw(t, "key"), rapid.SampledFrom(matchers).Draw(t, "matcher")
		if strings.HasPrefix(matcher, "cidrs") {
			key = "remote_address" // which a client can't choose
		}
		kind, _, list := strings.Cut(matcher, ": [")
		if seen[key+matcher] || list && seen[key+kind] {
			continue // the same value twice
		}
		seen[key+matcher], seen[key+kind] = true, true
		fmt.Fprintf(&b, "%s- key: %s\n", indent, key)
		if matcher != "" {
			fmt.Fprintf(&b, "%s  %s\n", indent, matcher)
		}
		randomLimit(t, &b, indent+"  ", strings.Contains(matcher, "*") && rapid.Bool().Draw(t, "shared"))
		if depth > 1 && rapid.IntRange(0, 2).Draw(t, "below") == 0 {
			fmt.Fprintf(&b, "%s  descriptors:\n%s", indent, randomDescriptors(t, indent+"    ", depth-1))
		}
	}
	return b.String()
}

func randomLimit(t *rapid.T, b *strings.Builder, indent string, shared bool) {
	flag := rapid.SampledFrom(flags).Draw(t, "flag")
	switch {
	case flag == "exempt: true, ":
		fmt.Fprintf(b, "%sexempt: true\n", indent)
		return
	case rapid.IntRange(0, 4).Draw(t, "limited") == 0:
		return
	case shared:
		fmt.Fprintf(b, "%sshare_threshold: true\n", indent)
	}
	if flag != "" {
		fmt.Fprintf(b, "%s%s\n", indent, strings.TrimSuffix(flag, ", "))
	}
	window := rapid.SampledFrom(windows).Draw(t, "window")
	name := rapid.SampledFrom([]string{"one", "two", "three"}).Draw(t, "name")
	replaces := ""
	if name == "three" && rapid.Bool().Draw(t, "replaces") {
		replaces = ", replaces: [{name: one}]"
	}
	fmt.Fprintf(b, "%srate_limit: {name: %s, %s%s}\n", indent, name, window, replaces)
}

func randomEntries(t *rapid.T) []descriptors.Entry {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) descriptors.Entry {
		return descriptors.Entry{Key: rapid.SampledFrom(keys).Draw(t, "key"), Value: rapid.SampledFrom(sent).Draw(t, "value")}
	}), 1, 2).Draw(t, "entries")
}

func TestWhatAFileWithoutRulesPreparesIsLost(t *testing.T) {
	_, lost := converted(t, descriptors.Options{Defaults: compatDefaults},
		descriptors.File{Name: "rules.yaml", Data: []byte("domain: d\ndescriptors: [{key: user, value: ANN, rate_limit: {unit: day, requests_per_unit: 1}}]")},
		descriptors.File{Name: "keys.yaml", Data: []byte("domains: ['*']\nkeys: {user: {hash: true}}")})
	if text := fmt.Sprint(lost); !strings.Contains(text, "rules.yaml:1:9: warning: keys.user: values of user are compared and counted as they are sent") {
		t.Errorf("lost are %s", text)
	}
}

// TestWhatIsConvertedWithoutLossDecidesAlike asks the rules, what they are converted to, and the replaced service.
func TestWhatIsConvertedWithoutLossDecidesAlike(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		file := descriptors.File{Name: "rules.yaml", Data: []byte(randomRules(r))}
		native := descriptors.Options{Defaults: compatDefaults}
		before, problems := descriptors.Compile([]descriptors.File{file}, native)
		if descriptors.HasErrors(problems) {
			r.Fatalf("%v\n%s", problems, file.Data)
		}
		result, lost := converted(t, native, file)
		if len(lost) > 0 {
			r.Fatalf("lost %v of\n%s", lost, file.Data)
		}
		after, _ := descriptors.Compile(result, descriptors.Options{Defaults: compatDefaults, FileOrder: true})
		old := loaded(t, result)
		services := [2]*rls.Service{serviceOf(before), serviceOf(after)}
		for range 40 {
			req := &ratelimit.RateLimitRequest{Domain: "d"}
			for range rapid.IntRange(1, 3).Draw(r, "descriptors") {
				entries := randomEntries(r)
				if got, want := old.match("d", entries), limitOf(before, entries); got != want {
					r.Fatalf("%v gets %q from the replaced service, here %q\n%s\n%s", entries, got, want, file.Data, result[0].Data)
				}
				req.Descriptors = append(req.Descriptors, descriptorOf(entries))
			}
			if a, b := answer(services[0], req), answer(services[1], req); a != b {
				r.Fatalf("%v\n%s\nconverted\n%s\n%s\n%s", req, a, b, file.Data, result[0].Data)
			}
		}
	})
}

// serviceOf has a clock that stands.
func serviceOf(rules *descriptors.Ruleset) *rls.Service {
	now := func() time.Time { return time.Date(2026, 11, 30, 10, 0, 11, 0, time.UTC) }
	s := rls.New(memstore.New(memstore.Options{Now: now}), rls.Options{Now: now, Compat: true})
	s.SetRules(rules)
	return s
}

func descriptorOf(entries []descriptors.Entry) *common.RateLimitDescriptor {
	d := &common.RateLimitDescriptor{}
	for _, e := range entries {
		d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: e.Key, Value: e.Value})
	}
	return d
}

// limitOf is the limit of a descriptor in the words of replaced.match.
func limitOf(rules *descriptors.Ruleset, entries []descriptors.Entry) string {
	switch r := rules.Domain("d").Match(entries); {
	case r == nil:
		return ""
	case r.Unlimited || r.Exempt:
		return "no limit"
	default:
		for u := descriptors.Second; u.Valid(); u++ { // as 60 seconds are a minute
			if period, _ := u.Period(1); period == r.Limits[0].Period {
				return fmt.Sprintf("%d per %s", r.Limits[0].Requests, u)
			}
		}
		return r.Limits[0].Words()
	}
}

// answer is what a request gets: the codes, and what is left of each limit.
func answer(s *rls.Service, req *ratelimit.RateLimitRequest) string {
	a, err := s.ShouldRateLimit(context.Background(), req)
	text := fmt.Sprintf("%s %v", a.GetOverallCode(), err)
	for _, st := range a.GetStatuses() {
		text += ", " + st.GetCode().String()
		if limit := st.GetCurrentLimit(); limit != nil {
			text += fmt.Sprintf(" %s: %d of %d, reset %s", limit.GetName(), st.GetLimitRemaining(), limit.GetRequestsPerUnit(),
				st.GetDurationUntilReset().AsDuration())
		}
	}
	return text
}
