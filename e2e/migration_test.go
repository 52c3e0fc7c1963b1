package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// TestTheFilterOfTheMigrationIsValid puts the filter of docs/migration.md before the one of deploy/envoy.yaml.
func TestTheFilterOfTheMigrationIsValid(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(proctest.Root(), "docs", "migration.md"))
	if err != nil {
		t.Fatal(err)
	}
	bootstrap, err := os.ReadFile(filepath.Join(proctest.Root(), "deploy", "envoy.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(text), "```yaml\n")
	block, _, _ = strings.Cut(block, "\n```")
	const here = "- name: envoy.filters.http.ratelimit\n"
	before, after, found := strings.Cut(string(bootstrap), here)
	if !found || !strings.HasPrefix(block, "- name:") {
		t.Fatal("no place for a filter, or no filter")
	}
	indent := "\n" + before[strings.LastIndex(before, "\n")+1:]
	file := filepath.Join(t.TempDir(), "envoy.yaml")
	both := before + strings.ReplaceAll(block, "\n", indent) + indent + here + after
	if err := os.WriteFile(file, []byte(both), 0o600); err != nil {
		t.Fatal(err)
	}
	p := proctest.Start(t, nil, proctest.EnvoyBinary(t), "--mode", "validate", "--config-path", file, "--disable-hot-restart",
		"--use-dynamic-base-id")
	if code := p.Wait(); code != 0 || strings.Contains(p.Output(), "deprecated") {
		t.Errorf("exit code %d:\n%s", code, p.Output())
	}
}
