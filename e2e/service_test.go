package e2e

import (
	"io"
	"iter"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// rulesIn writes a directory of rule files: a list of descriptors for each domain.
func rulesIn(t *testing.T, descriptors map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for domain, list := range descriptors {
		text := "domain: " + domain + "\ndescriptors:\n" + list
		if err := os.WriteFile(filepath.Join(dir, domain+".yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return "--rules=" + dir
}

// exactService starts an envoy-rls that has all the time it wants, and checks in the end that it has counted
// everything: no failure policy answered.
func exactService(t *testing.T, args ...string) *proctest.Service {
	t.Helper()
	s := proctest.StartService(t, append(args, "--store-timeout=20s")...)
	t.Cleanup(func() {
		if n := s.Metric("envoy_rls_degraded_answers_total"); n != 0 {
			t.Errorf("a failure policy answered %v times, where the store should have", n)
		}
	})
	return s
}

func lines(t *testing.T, url string) iter.Seq[string] {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return strings.SplitSeq(string(text), "\n")
}
