package xds

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rlsconf "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

func resource(t testing.TB, text string) *rlsconf.RateLimitConfig {
	t.Helper()
	r := &rlsconf.RateLimitConfig{}
	if err := protojson.Unmarshal([]byte(text), r); err != nil {
		t.Fatal(err)
	}
	return r
}

func resourceFile(t testing.TB, name string) *rlsconf.RateLimitConfig {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return resource(t, string(text))
}

func response(t testing.TB, version string, resources ...*rlsconf.RateLimitConfig) *discovery.DiscoveryResponse {
	t.Helper()
	r := &discovery.DiscoveryResponse{VersionInfo: version, TypeUrl: typeURL, Nonce: "n" + version}
	for _, resource := range resources {
		packed, err := anypb.New(resource)
		if err != nil {
			t.Fatal(err)
		}
		r.Resources = append(r.Resources, packed)
	}
	return r
}

// compile puts resources through what a response goes through.
func compile(t testing.TB, resources ...*rlsconf.RateLimitConfig) (*descriptors.Ruleset, []descriptors.Problem) {
	t.Helper()
	set, problems := read(response(t, "1", resources...))
	if len(problems) > 0 {
		return nil, problems
	}
	return descriptors.NewLoader(descriptors.Options{}).LoadSet(set.Files)
}

// entries reads key=value|key=value; a slash is no sign.
func entries(text string) (list []descriptors.Entry) {
	for _, e := range strings.Split(text, "|") {
		k, v, _ := strings.Cut(e, "=")
		list = append(list, descriptors.Entry{Key: k, Value: v})
	}
	return list
}

func TestWhatGatewaysSendBecomesRules(t *testing.T) {
	rules, problems := compile(t, resourceFile(t, "envoy-gateway.json"), resourceFile(t, "envoy-gateway-shared.json"),
		resourceFile(t, "ai-gateway.json"))
	for _, p := range problems {
		t.Error(p)
	}
	const (
		wide  = "httproute/default/shop/rule/0/match/0/*_example_com"
		exact = "httproute/default/shop/rule/1/match/0/www_example_com"
		model = "backend_name=default/openai|model_name_override=gpt-4|"
	)
	for _, c := range []struct{ domain, descriptor, want string }{
		{"default/eg/http", wide + "=" + wide + "|rule-0-match-0=rule-0-match-0|rule-0-method=rule-0-method|rule-0-path=rule-0-path", "3 per hour"},
		{"default/eg/http", wide + "=" + wide + "|rule-0-match-0=rule-0-match-0", ""},
		{"default/eg/http", wide + "=" + wide + "|rule-1-match--1=rule-1-match--1", "100 per minute"},
		{"default/eg/http", wide + "=" + wide + "|rule-2-match-0=client-b", "7 per month shadow"},
		{"default/eg/http", wide + "=" + wide + "|rule-2-match-0=client-a", "0 per year"},
		{"default/eg/http", exact + "=" + exact + "|masked_remote_address=192.0.2.0/24", "5 per week"},
		{"default/eg/http", exact + "=" + exact + "|masked_remote_address=0.0.0.0/0|remote_address=192.0.2.1", "20 per second"},
		{"default/eg/http", exact + "=" + exact + "|masked_remote_address=invert:198.51.100.0/24", "9 per day"},
		{"default/shared-policy", "default/shared-policy/rule/0=default/shared-policy/rule/0|rule-0-match-0=rule-0-match-0", "21 per hour"},
		{"ai-gateway-quota", model + "rule-0-match-0=rule-0-match-0", "2 per hour quota"},
		{"ai-gateway-quota", model + "rule-default-match--1=rule-default-match--1", "4 per day quota"},
	} {
		got := ""
		if r := rules.Domain(c.domain).Match(entries(c.descriptor)); r != nil {
			if strings.Contains(fmt.Sprint(r.Each), "httproute") {
				t.Errorf("%s counts %q apart", c.descriptor, r.Each)
			}
			got = r.Limits[0].Words() + map[limiter.Role]string{limiter.Shadow: " shadow", limiter.Quota: " quota"}[r.Role]
		}
		if got != c.want {
			t.Errorf("%s %s: %q, want %q", c.domain, c.descriptor, got, c.want)
		}
	}
}

func TestAResourceKeepsAllThatItSays(t *testing.T) {
	meta, err := structpb.NewStruct(map[string]any{"team": "a", "weights": []any{1.5, 2}})
	if err != nil {
		t.Fatal(err)
	}
	r := resource(t, `{"name": "n", "domain": "d", "descriptors": [
		{"key": "yes", "value": "no", "detailed_metric": true, "rate_limit": {"unlimited": true, "name": "all", "replaces": [{"name": "other"}]}},
		{"key": "a: b", "value": "1.50", "rate_limit": {"unit": "SECOND", "requests_per_unit": 4294967295, "name": "other"}}
	]}`)
	r.Descriptors[1].Metadata = meta
	rules, problems := compile(t, r)
	for _, p := range problems {
		t.Error(p)
	}
	free := rules.Domain("d").Match(entries("yes=no"))
	if free == nil || !free.Unlimited || !free.PerValue() || fmt.Sprint(free.Replaces) != "[other]" {
		t.Errorf("the unlimited rule is %+v", free)
	}
	limited := rules.Domain("d").Match(entries("a: b=1.50"))
	if limited == nil || limited.Limits[0].Requests != 4294967295 || fmt.Sprint(limited.Metadata) != "map[team:a weights:[1.5 2]]" {
		t.Errorf("the limited rule is %+v", limited)
	}
}

func TestProblemsNameTheResourceAndThePathInIt(t *testing.T) {
	for want, r := range map[string]*rlsconf.RateLimitConfig{
		"resource n: d.a_b.rate_limit: unit is missing": resource(t,
			`{"name": "n", "domain": "d", "descriptors": [{"key": "a", "value": "b", "rate_limit": {"requests_per_unit": 1}}]}`),
		"resource n: d.a.rate_limit.unit: unknown unit": resource(t,
			`{"name": "n", "domain": "d", "descriptors": [{"key": "a", "rate_limit": {"unit": 99, "requests_per_unit": 1}}]}`),
		"resource n: d.a.rate_limit.unit: an unlimited rate_limit has no unit": resource(t,
			`{"name": "n", "domain": "d", "descriptors": [{"key": "a", "rate_limit": {"unit": "DAY", "unlimited": true}}]}`),
		"resource n: domain: a file needs a domain": resource(t, `{"name": "n"}`),
		"resource n: d.descriptors: a descriptor needs a key": resource(t,
			`{"name": "n", "domain": "d", "descriptors": [{"value": "b"}]}`),
		`resource "a\nb": domain: "d\n" holds a control character`: resource(t, `{"name": "a\nb", "domain": "d\n"}`),
		`resource "": domain: a file needs a domain`:               resource(t, `{}`),
	} {
		_, problems := compile(t, r)
		if !strings.Contains(words(problems), want) {
			t.Errorf("the problems are %q, want %q", words(problems), want)
		}
	}
	two := resource(t, `{"name": "m", "domain": "d"}`)
	if _, problems := compile(t, resource(t, `{"name": "n", "domain": "d"}`), two); !strings.Contains(words(problems),
		`resource n: domain: domain "d" is already at resource m; put both into one file`) {
		t.Errorf("two resources of one domain: %q", words(problems))
	}
}

func TestDescriptorsOfOneShapeAreMadeOne(t *testing.T) {
	r := resource(t, `{"name": "n", "domain": "d", "descriptors": [
		{"key": "cidr", "value": "a", "rate_limit": {"unit": "HOUR", "requests_per_unit": 5}},
		{"key": "cidr", "value": "a", "descriptors": [{"key": "ip", "rate_limit": {"unit": "HOUR", "requests_per_unit": 2}}]},
		{"key": "cidr", "value": "a", "rate_limit": {"unit": "DAY", "requests_per_unit": 9}, "descriptors": [{"key": "ip"}, {"key": "port", "rate_limit": {"unit": "HOUR", "requests_per_unit": 3}}]},
		{"key": "other", "descriptors": [{"key": "x", "rate_limit": {"unit": "HOUR", "requests_per_unit": 4}}]},
		{"key": "other", "shadow_mode": true, "rate_limit": {"unit": "HOUR", "requests_per_unit": 6}}
	]}`)
	rules, problems := compile(t, r)
	for descriptor, want := range map[string]string{
		"cidr=a": "5 per hour", "cidr=a|ip=1": "2 per hour", "cidr=a|port=1": "3 per hour", "other=1|x=1": "4 per hour", "other=1": "6 per hour",
	} {
		if got := rules.Domain("d").Match(entries(descriptor)); got == nil || got.Limits[0].Words() != want {
			t.Errorf("%s: %+v, want %s", descriptor, got, want)
		}
	}
	if rules.Domain("d").Match(entries("other=1")).Role != limiter.Shadow {
		t.Error("a limit came without its mode")
	}
	text := fmt.Sprint(problems)
	for _, want := range []string{
		"resource n: warning: d.cidr_a: there is more than one descriptor with this key and value, and they are made one resource",
		"the limit of the first stays, 5 per hour, and 9 per day is not used",
		"resource n: warning: d.other: there is more than one descriptor with this key and value, and they are made one, with the limit of this one",
		"resource n: warning: d.cidr_a.ip: there is more than one descriptor",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no warning says %q:\n%s", want, text)
		}
	}
}

func TestASnapshotIsTheSetAgain(t *testing.T) {
	set, _ := read(response(t, "7", resourceFile(t, "envoy-gateway.json"), resourceFile(t, "ai-gateway.json")))
	saved := time.Now().Truncate(time.Second)
	snapshot, err := set.Snapshot(saved)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Restore(snapshot, 1<<20)
	if err != nil || again.Version != "7" || !again.Saved.Equal(saved) || fmt.Sprint(again.Files) != fmt.Sprint(set.Files) {
		t.Errorf("the set is %+v, %v", again, err)
	}
	for i := range snapshot {
		if _, err := Restore(snapshot[:i], 1<<20); err == nil {
			t.Fatalf("the first %d bytes are a snapshot", i)
		}
	}
	broken := append([]byte(nil), snapshot...)
	broken[len(broken)/2] ^= 1
	if _, err := Restore(broken, 1<<20); err == nil {
		t.Error("a broken snapshot is one")
	}
	if _, err := Restore(snapshot, 100); err == nil || !strings.Contains(err.Error(), "more than 100 bytes") {
		t.Errorf("a snapshot that is too long: %v", err)
	}
}

// FuzzResource has whatever bytes for a resource: it becomes rules, or problems that can be sent.
func FuzzResource(f *testing.F) {
	for _, name := range []string{"envoy-gateway.json", "envoy-gateway-shared.json", "ai-gateway.json"} {
		wire, err := proto.Marshal(resourceFile(f, name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(wire)
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		set, problems := read(&discovery.DiscoveryResponse{Resources: []*anypb.Any{{TypeUrl: typeURL, Value: wire}}})
		var rules *descriptors.Ruleset
		if !descriptors.HasErrors(problems) {
			rules, problems = descriptors.NewLoader(descriptors.Options{}).LoadSet(set.Files)
		}
		if (rules == nil) != descriptors.HasErrors(problems) {
			t.Errorf("rules %v beside problems %v", rules, problems)
		}
		if _, err := proto.Marshal(&discovery.DiscoveryRequest{VersionInfo: words(problems)}); err != nil {
			t.Errorf("the reason can't be sent: %v", err)
		}
		if len(words(problems)) > maxReason+len("; and more") {
			t.Errorf("a reason of %d bytes", len(words(problems)))
		}
	})
}

func FuzzRestore(f *testing.F) {
	set, _ := read(response(f, "7", resourceFile(f, "ai-gateway.json")))
	snapshot, err := set.Snapshot(time.Unix(1, 0))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(snapshot)
	f.Fuzz(func(t *testing.T, data []byte) {
		if set, err := Restore(data, 1<<20); (set == nil) != (err != nil) {
			t.Errorf("a set and the error %v", err)
		}
	})
}
