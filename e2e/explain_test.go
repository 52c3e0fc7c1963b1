package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// documentedLog is the format of docs/explain.md.
func documentedLog(t *testing.T) map[string]any {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(proctest.Root(), "docs", "explain.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(text), "```text\njson_format:")
	block, _, _ = strings.Cut("json_format:"+block, "```")
	fields, _ := parsed(t, block)["json_format"].(node)
	if len(fields) < 2 {
		t.Fatalf("docs/explain.md has the format %q", block)
	}
	return fields
}

func TestALineOfEnvoysAccessLogIsExplained(t *testing.T) {
	const (
		rules  = `- {key: user, value: ann, rate_limit: {unit: day, requests_per_unit: 1}}`
		routed = `- actions: [{request_headers: {header_name: x-user, descriptor_key: user}}]`
	)
	t.Setenv("RESPONSE_DYNAMIC_METADATA", "true")
	inForce := rulesIn(t, map[string]string{"told": rules})
	s := exactService(t, inForce)
	g := startGateway(t, bootstrap{
		AccessLog: documentedLog(t),
		Listeners: []listener{{Name: "ingress", Service: "service", Deny: true}},
		Services:  []cluster{replicas("service", s)},
		Routes:    []route{{"told", limits(t, routed)}},
	})
	for user, want := range map[string]string{
		"ann": "rule      told.user_ann\n",
		"Ann": "no rule   `user` has no rule for this value: it differs in case from `ann`",
	} {
		g.answers(t, request{listener: "ingress", path: "told", headers: []string{"x-user: " + user}}, "200")
		line := ""
		proctest.Eventually(t, "a line tells of "+user, func() bool {
			for text := range strings.SplitSeq(g.Output(), "\n") {
				if strings.Contains(text, `"user=`+user+`"`) {
					line = text
				}
			}
			return line != ""
		})
		file := filepath.Join(t.TempDir(), "line.json")
		if err := os.WriteFile(file, []byte(line), 0o600); err != nil {
			t.Fatal(err)
		}
		out, _ := exec.Command(proctest.Binary(t), "explain", inForce, "--request", file).CombinedOutput() // 3 is no match
		if !strings.Contains(string(out), want) {
			t.Errorf("of %s, explain says\n%s\nwant %s", line, out, want)
		}
	}
}
