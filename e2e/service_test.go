package e2e

import (
	"io"
	"iter"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
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
	s := proctest.StartService(t, append(args, "--store-timeout=5s")...)
	t.Cleanup(func() {
		if n := total(t, s, "envoy_rls_degraded_answers_total"); n != 0 {
			t.Errorf("a failure policy answered %v times, where the store should have", n)
		}
	})
	return s
}

// total is the sum of a metric's series that have all the labels, each as name="value".
func total(t *testing.T, s *proctest.Service, metric string, labels ...string) float64 {
	t.Helper()
	var sum float64
	for line := range lines(t, "http://"+s.HTTP+"/metrics") {
		name, _, _ := strings.Cut(strings.ReplaceAll(line, " ", "{"), "{")
		if name != metric || !containsAll(line, labels) {
			continue
		}
		n, err := strconv.ParseFloat(line[strings.LastIndex(line, " ")+1:], 64)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		sum += n
	}
	return sum
}

func containsAll(text string, parts []string) bool {
	for _, p := range parts {
		if !strings.Contains(text, p) {
			return false
		}
	}
	return true
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
