package main

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// TestTheMetricsAreTheDescribedOnes compares docs/metrics.md with what the program serves after some calls; and with the
// names in the code, since some series are there only once there is something to count.
func TestTheMetricsAreTheDescribedOnes(t *testing.T) {
	rows := described(t)
	named := namedInTheCode(t)
	for name := range rows {
		if !named[name] {
			t.Errorf("docs/metrics.md has %s, which the code does not name", name)
		}
	}
	for name := range named {
		if rows[name] == "" {
			t.Errorf("docs/metrics.md lacks %s", name)
		}
	}
	redis := proctest.StartRedis(t)
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(rules, []byte(describedRules), 0o600); err != nil {
		t.Fatal(err)
	}
	service := proctest.StartService(t, "--rules="+rules, "--redis="+redis.URL(), "--store-timeout=5s",
		"--redis-per-second", "--redis-per-second-url="+redis.URL())
	client := ratelimit.NewRateLimitServiceClient(dial(t, service.GRPC))
	for _, req := range []*ratelimit.RateLimitRequest{shopRequest("user"), shopRequest("nobody"), {Domain: "else"}} {
		_, _ = client.ShouldRateLimit(t.Context(), req) // whatever it answers is counted
	}
	_, text := service.Get("/metrics")
	served := families(text)
	const few = 35
	if len(served) < few {
		t.Errorf("only %d families are served", len(served))
	}
	for name, is := range served {
		if is != rows[name] {
			t.Errorf("docs/metrics.md says of %s that it is %q, and it is %q", name, rows[name], is)
		}
	}
}

// describedRules have a rule of two levels, whose limit is exhausted.
const describedRules = `
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: year, requests_per_unit: 0}
    descriptors:
      - {key: path, rate_limit: {unit: year, requests_per_unit: 1}}
`

// The ways in which code names series: natively, and by the replaced service's names.
var (
	namedNatively = regexp.MustCompile(`(?:\.counters|\.gauges|\.histogram|GaugeFunc|CounterFunc|\.gauge|desc)\("([a-z_]+)"`)
	namedReplaced = regexp.MustCompile(`(?:prometheus: |oldNamespace\+)"([a-z_]+)"`)
	namedGauges   = regexp.MustCompile(`ReplacedGauge\("([a-z_.]+)"`)
	namedKinds    = regexp.MustCompile(`(?s)kindNames = \[kinds\]string\{(.*?)\}`)
)

func namedInTheCode(t *testing.T) map[string]bool {
	t.Helper()
	named := map[string]bool{}
	for _, pattern := range []string{"pkg/metrics/*.go", "cmd/envoy-rls/*.go"} {
		files, err := filepath.Glob(filepath.Join(proctest.Root(), pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasSuffix(file, "_test.go") {
				addNames(named, string(text))
			}
		}
	}
	return named
}

func addNames(named map[string]bool, code string) {
	for _, m := range namedNatively.FindAllStringSubmatch(code, -1) {
		named["envoy_rls_"+m[1]] = true
	}
	for _, m := range namedReplaced.FindAllStringSubmatch(code, -1) {
		named["ratelimit_service_"+strings.TrimSuffix(m[1], "_")] = true
	}
	for _, m := range namedGauges.FindAllStringSubmatch(code, -1) {
		named[strings.ReplaceAll(m[1], ".", "_")] = true
	}
	for _, m := range namedKinds.FindAllStringSubmatch(code, -1) {
		for kind := range strings.FieldsSeq(strings.NewReplacer(`"`, "", ",", "").Replace(m[1])) {
			named["ratelimit_service_rate_limit_"+kind] = true
		}
	}
	delete(named, "ratelimit_service_rate_limit") // begins the names of kinds
}

var describedName = regexp.MustCompile("^\\| `((?:envoy_rls|ratelimit)_[a-z_]+)` \\|")

var labelPattern = regexp.MustCompile(`(\w+)="(?:[^"\\]|\\.)*"`)

// described are the rows of docs/metrics.md: by a series' name its type and labels.
func described(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(proctest.Root(), "docs", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if m := describedName.FindStringSubmatch(line); m != nil {
			rows[m[1]] = strings.TrimSpace(strings.TrimSpace(cells[2]) + " " + strings.TrimSpace(cells[3]))
		}
	}
	return rows
}

// families are the series of a page of metrics, as described has them. Help texts can't hold a line that looks like one.
func families(text string) map[string]string {
	kinds, labels := map[string]string{}, map[string]map[string]bool{}
	for line := range strings.Lines(text) {
		if words := strings.Fields(line); len(words) == 4 && words[1] == "TYPE" {
			kinds[words[2]] = words[3]
			labels[words[2]] = map[string]bool{}
			continue
		}
		name, rest, _ := strings.Cut(line, "{")
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if own := strings.TrimSuffix(name, suffix); kinds[own] == "histogram" {
				name = own
			}
		}
		for _, pair := range labelPattern.FindAllStringSubmatch(rest, -1) {
			if labels[name] != nil && pair[1] != "le" {
				labels[name][pair[1]] = true
			}
		}
	}
	for name := range kinds {
		if !strings.HasPrefix(name, "envoy_rls_") && !strings.HasPrefix(name, "ratelimit_") {
			delete(kinds, name) // of the language and the process
			continue
		}
		kinds[name] += " " + strings.Join(slices.Sorted(maps.Keys(labels[name])), ", ")
		kinds[name] = strings.TrimSpace(kinds[name])
	}
	return kinds
}
