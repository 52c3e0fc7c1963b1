package main

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// inReplica is a command of the program that kubectl runs in a replica, and the line that it is said to print, if that is shown.
var inReplica = regexp.MustCompile(`(?m)kubectl .* -- /bin/envoy-rls (.*)\n([^$\x60\n{].*)?`)

// TestTheCommandsForReplicasDoWhatIsSaid runs those of the documents and of the chart's notes, beside the chart's rules and those
// that the runbook has in mind, and with a fleet's admin. How kubectl gets them there is a matter of deploy/test.
func TestTheCommandsForReplicasDoWhatIsSaid(t *testing.T) {
	dir := t.TempDir()
	demo, err := os.ReadFile(filepath.Join(proctest.Root(), "config", "demo.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"demo.yaml": string(demo),
		"token":     "a-token-for-tests-only\n",
		"shop.yaml": "domain: shop\ndescriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 1}}]\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	notes, err := os.ReadFile(filepath.Join(proctest.Root(), "deploy", "helm", "envoy-rls", "templates", "NOTES.txt"))
	if err != nil {
		t.Fatal(err)
	}
	pages := documents(t)
	pages["NOTES.txt"] = string(notes)
	token, ran := filepath.Join(dir, "token"), map[bool]int{} // by whether admin is asked
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		for _, m := range inReplica.FindAllStringSubmatch(pages[name], -1) {
			service := proctest.StartService(t, "--rules="+dir, "--admin-host=0.0.0.0", "--admin-token-file="+token)
			command := strings.NewReplacer("DOMAIN", "shop", "KEY=VALUE", "usr=ann", "{{ $name }}-headless:6070", service.Admin,
				"envoy-rls-headless:6070", service.Admin, "/etc/envoy-rls/admin/token", token).Replace(m[1])
			cmd := exec.Command(proctest.Binary(t), strings.Fields(command)...)
			cmd.Env = append(os.Environ(), "RLS_ADDR="+service.GRPC, "ENVOY_RLS_ADMIN=http://"+service.Admin)
			out, err := cmd.CombinedOutput()
			asksAdmin := !strings.HasPrefix(command, "call ")
			ran[asksAdmin]++
			if asksAdmin {
				if err != nil {
					t.Errorf("%s: %s: %v\n%s", name, command, err, out)
				}
				continue
			}
			// An exit of 1 is a refusal.
			if m[2] != "" && string(out) != m[2]+"\n" || !strings.HasPrefix(string(out), "1   OK ") {
				t.Errorf("%s: %s prints\n%s", name, command, out)
			}
			if lines := strings.Split(string(out), "\n"); strings.Contains(command, "--repeat 4") && !strings.HasPrefix(lines[3], "4   OVER_LIMIT") {
				t.Errorf("%s: %s prints\n%s", name, command, out)
			}
		}
	}
	if ran[false] < 5 || ran[true] < 5 {
		t.Errorf("there are %d, and %d that ask admin", ran[false], ran[true])
	}
}
