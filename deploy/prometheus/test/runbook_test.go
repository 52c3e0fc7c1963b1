package monitoring

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// sections are what each alert's entry in the runbook has.
var sections = []string{"**It means**", "**Users notice**", "**Look at**", "**Do**"}

func TestEachAlertHasAnEntryInTheRunbookAndEachEntryAnAlert(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(proctest.Root(), "docs", "runbook.md"))
	if err != nil {
		t.Fatal(err)
	}
	entries := map[string]string{}
	for _, part := range strings.Split(string(text), "\n## ")[1:] {
		name, entry, _ := strings.Cut(part, "\n")
		entries[name] = entry
	}
	for _, r := range newPrometheus(t).alerts() {
		entry, there := entries[r.Name()]
		if !there {
			t.Errorf("%s has no entry", r.Name())
		}
		delete(entries, r.Name())
		for _, s := range sections {
			if !strings.Contains(entry, "\n"+s) {
				t.Errorf("the entry of %s lacks %s", r.Name(), s)
			}
		}
		url := r.Annotations().Get("runbook_url")
		if want := "/blob/main/docs/runbook.md#" + strings.ToLower(r.Name()); !strings.HasSuffix(url, want) {
			t.Errorf("%s leads to %s", r.Name(), url)
		}
		for _, needed := range []string{"summary", "description"} {
			if r.Annotations().Get(needed) == "" {
				t.Errorf("%s has no %s", r.Name(), needed)
			}
		}
		if !slices.Contains([]string{"critical", "warning", "info"}, r.Labels().Get("severity")) {
			t.Errorf("%s is %q", r.Name(), r.Labels().Get("severity"))
		}
	}
	for name := range entries {
		t.Errorf("the runbook has %s, which is no alert", name)
	}
}

func TestEveryMetricAndFileThatTheRunbookNamesExists(t *testing.T) {
	docs := filepath.Join(proctest.Root(), "docs")
	text, err := os.ReadFile(filepath.Join(docs, "runbook.md"))
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := os.ReadFile(filepath.Join(docs, "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range regexp.MustCompile(`envoy_rls_[a-z_]+`).FindAllString(string(text), -1) {
		if !strings.Contains(string(metrics), "`"+name+"`") {
			t.Errorf("docs/metrics.md doesn't know %s", name)
		}
	}
	for _, m := range regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`).FindAllStringSubmatch(string(text), -1) {
		if _, err := os.Stat(filepath.Join(docs, m[1])); err != nil {
			t.Error(err)
		}
	}
}
