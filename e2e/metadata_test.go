package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// logLine is one of Envoy's access log.
type logLine struct {
	Path     string
	Status   int
	Metadata struct {
		Domain      string
		Descriptors []struct {
			Entries    []string
			HitsAddend float64
		}
		Metadata map[string]any // of rules
	}
	Verdict string
}

func (g *gateway) accessLog() []logLine {
	var list []logLine
	for text := range strings.SplitSeq(g.Output(), "\n") {
		var l logLine
		if json.Unmarshal([]byte(text), &l) == nil {
			list = append(list, l)
		}
	}
	return list
}

func TestDynamicMetadataReachesEnvoysAccessLog(t *testing.T) {
	const rules = `
- {key: user, metadata: {plan: free, team: {name: web}}, rate_limit: {unit: day, requests_per_unit: 1}}
- {key: all, value: "yes", metadata: {plan: any, team: {size: 3}}, rate_limit: {unit: day, requests_per_unit: 9}}`
	const routed = `
- actions: [{request_headers: {header_name: x-user, descriptor_key: user}}]
- actions: [{generic_key: {descriptor_key: all, descriptor_value: "yes"}}]
  hits_addend: {number: 2}`
	want := []map[string]any{
		{"plan": "free", "team": map[string]any{"name": "web", "size": 3.0}},
		{"plan": "any", "team": map[string]any{"size": 3.0}}, // only that of the rule that lets it pass
	}
	onBothStores(t, func(t *testing.T, store string) {
		t.Setenv("RESPONSE_DYNAMIC_METADATA", "true")
		s := exactService(t, store, rulesIn(t, map[string]string{"told": rules}))
		g := startGateway(t, bootstrap{
			Listeners: []listener{{Name: "ingress", Service: "service", Deny: true}},
			Services:  []cluster{replicas("service", s)},
			Routes:    []route{{"told", limits(t, routed)}},
		})
		r := request{listener: "ingress", path: "told", headers: []string{"x-user: ann"}}
		g.answers(t, r, "200")
		g.answers(t, r, "429")
		proctest.Eventually(t, "two lines are in the access log", func() bool { return len(g.accessLog()) == 2 })
		for i, line := range g.accessLog() {
			m := line.Metadata
			if m.Domain != "told" || len(m.Descriptors) != 2 {
				t.Fatalf("line %d, %+v, does not tell what was asked", i+1, line)
			}
			if got := m.Descriptors; !slices.Equal(got[0].Entries, []string{"user=ann"}) || got[1].HitsAddend != 2 {
				t.Errorf("line %d tells of the descriptors %+v", i+1, got)
			}
			if !reflect.DeepEqual(m.Metadata, want[i]) {
				t.Errorf("line %d has the rules' metadata %v, not %v", i+1, m.Metadata, want[i])
			}
		}
	})
}

// verdictFormat is that of docs/refusals.md.
func verdictFormat(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(proctest.Root(), "docs", "refusals.md"))
	if err != nil {
		t.Fatal(err)
	}
	format := regexp.MustCompile("(?m)^```\n(%.*%)\n```$").FindStringSubmatch(string(text))
	if format == nil {
		t.Fatal("docs/refusals.md has no format")
	}
	return format[1]
}

// TestEnvoysAccessLogNamesTheLimitThatRefusedOrWouldHave has a limit in force, and a stricter one that is tried out.
func TestEnvoysAccessLogNamesTheLimitThatRefusedOrWouldHave(t *testing.T) {
	const rules = `
- key: user
  rate_limits:
    - {name: now, unit: day, requests_per_unit: 2}
    - {name: proposed, unit: year, requests_per_unit: 1, shadow_mode: true}`
	const routed = `
- actions: [{request_headers: {header_name: x-user, descriptor_key: user}}]`
	onBothStores(t, func(t *testing.T, store string) {
		t.Setenv("VERDICT_METADATA", "true")
		s := exactService(t, store, rulesIn(t, map[string]string{"tried": rules}))
		g := startGateway(t, bootstrap{
			Listeners: []listener{{Name: "ingress", Service: "service", Deny: true}},
			Services:  []cluster{replicas("service", s)},
			AccessLog: map[string]any{"verdict": verdictFormat(t)},
			Routes:    []route{{"tried", limits(t, routed)}},
		})
		r := request{listener: "ingress", path: "tried", headers: []string{"x-user: ann"}}
		for _, code := range []string{"200", "200", "429"} {
			g.answers(t, r, code)
		}
		var told []string
		proctest.Eventually(t, "three lines are in the access log", func() bool {
			told = nil
			for _, line := range g.accessLog() {
				told = append(told, line.Verdict)
			}
			return len(told) == 3
		})
		if want := []string{"- -", `- ["proposed"]`, `now ["proposed"]`}; !slices.Equal(told, want) {
			t.Errorf("the lines tell %q, not %q", told, want)
		}
	})
}
