package drills

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// testFuncs are the tests declared in the files below a directory.
func testFuncs(t *testing.T, dir string) map[string]bool {
	t.Helper()
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)
	names := map[string]bool{}
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range declared.FindAllStringSubmatch(string(text), -1) {
			names[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestTheTableOfFailuresNamesTestsThatThereAre(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(proctest.Root(), "docs", "failure.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for _, name := range regexp.MustCompile(`Test\w+`).FindAllString(string(text), -1) {
		named[name] = true
	}
	for line := range strings.Lines(string(text)) {
		row := strings.HasPrefix(line, "| ") && !strings.HasSuffix(line, "| test |\n") // which a head does
		if row && !strings.Contains(line, "`Test") {
			t.Errorf("docs/failure.md names no test in: %s", line)
		}
	}
	all := testFuncs(t, proctest.Root())
	for name := range named {
		if !all[name] {
			t.Errorf("docs/failure.md names %s, which there is not", name)
		}
	}
	drills := testFuncs(t, ".")
	delete(drills, t.Name())
	for name := range drills {
		if !named[name] {
			t.Errorf("docs/failure.md has no row for %s", name)
		}
	}
}
