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
	"time"

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
	replica := replicaOfDocuments{t, dir, filepath.Join(dir, "token")}
	calls, others := 0, 0
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		for _, m := range inReplica.FindAllStringSubmatch(pages[name], -1) {
			command, out, err := replica.run(m[1])
			isCall := strings.HasPrefix(command, "call ")
			if isCall {
				calls++
			} else {
				others++
			}
			if isCall && !isAsSaid(command, out, m[2]) || !isCall && err != nil { // a call's exit of 1 is a refusal
				t.Errorf("%s: %s prints, and ends with %v:\n%s", name, command, err, out)
			}
		}
	}
	if calls < 5 || others < 5 {
		t.Errorf("there are %d calls, and %d others", calls, others)
	}
}

// isAsSaid tells whether a call prints what is shown, if that is, and four calls a refusal.
func isAsSaid(command, out, shown string) bool {
	if shown != "" && out != shown+"\n" || !strings.HasPrefix(out, "1   OK ") {
		return false
	}
	return !strings.Contains(command, "--repeat 4") || strings.HasPrefix(strings.Split(out, "\n")[3], "4   OVER_LIMIT")
}

// replicaOfDocuments is one of the fleet that the documents have in mind.
type replicaOfDocuments struct {
	*testing.T
	rules, token string
}

// run runs a command in a new replica, and returns it with the names that are in the place of the documents'.
func (r replicaOfDocuments) run(text string) (command, out string, err error) {
	r.Helper()
	service := proctest.StartService(r.T, "--rules="+r.rules, "--admin-host=0.0.0.0", "--admin-token-file="+r.token)
	command = strings.NewReplacer("DOMAIN", "shop", "KEY=VALUE", "usr=ann", "{{ $name }}-headless:6070", service.Admin,
		"envoy-rls-headless:6070", service.Admin, "/etc/envoy-rls/admin/token", r.token).Replace(text)
	args := strings.Fields(command)
	if args[0] == "call" {
		args = append(args, "--timeout=20s")
		proctest.Eventually(r.T, "a minute has fifteen seconds left", func() bool { return time.Now().Second() < 45 })
	}
	cmd := exec.Command(proctest.Binary(r.T), args...)
	cmd.Env = append(os.Environ(), "RLS_ADDR="+service.GRPC, "ENVOY_RLS_ADMIN=http://"+service.Admin)
	printed, err := cmd.CombinedOutput()
	return command, string(printed), err
}
