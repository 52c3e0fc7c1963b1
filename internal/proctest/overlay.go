package proctest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// BuildWith builds an envoy-rls some of whose files, named from the repository's top, have other contents: one of
// another version.
func BuildWith(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	replace := map[string]string{}
	for name, text := range files {
		changed := filepath.Join(dir, filepath.Base(name))
		must(t, os.WriteFile(changed, []byte(text), 0o600))
		replace[filepath.Join(Root(), name)] = changed
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	must(t, err)
	list, binary := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "envoy-rls")
	must(t, os.WriteFile(list, overlay, 0o600))
	cmd := exec.Command("go", "build", "-overlay", list, "-o", binary, "./cmd/envoy-rls")
	cmd.Dir = Root()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build -overlay: %v\n%s", err, out)
	}
	return binary
}
