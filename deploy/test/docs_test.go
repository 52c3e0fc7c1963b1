package deploytest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/strvals"
)

const guide = "docs/kubernetes.md"

func text(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(repository, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestEveryFileThatTheGuideNamesExists(t *testing.T) {
	var names []string
	for _, m := range regexp.MustCompile(`\]\(([^)#]+)(?:#[^)]*)?\)`).FindAllStringSubmatch(text(t, guide), -1) {
		names = append(names, filepath.Join("docs", m[1]))
	}
	links := len(names)
	names = append(names, regexp.MustCompile(`\bdeploy/[-\w./]*\w`).FindAllString(text(t, guide), -1)...)
	if links < 10 || len(names) < links+10 {
		t.Fatalf("the guide has %d links, and names %d files", links, len(names))
	}
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(repository, name)); err != nil {
			t.Error(err)
		}
	}
}

func TestEveryValueThatIsSaidToBeSetIsOneOfTheChart(t *testing.T) {
	notes := text(t, "deploy/helm/envoy-rls/templates/NOTES.txt")
	checks := text(t, "deploy/helm/envoy-rls/templates/_helpers.tpl")
	settings := regexp.MustCompile(`--set '?([\w.]+=[^'\s`+"`"+`]+)`).FindAllStringSubmatch(text(t, guide)+notes+checks, -1)
	if len(settings) < 6 {
		t.Fatalf("there are %d", len(settings))
	}
	for _, m := range settings {
		set := values(t, required)
		if err := strvals.ParseInto(m[1], set); err != nil {
			t.Errorf("%s: %v", m[1], err)
		}
		if _, err := render(t, set); err != nil {
			t.Errorf("%s: %v", m[1], err)
		}
	}
}

func TestTheGuidesFirstInstallationNeedsNothingElse(t *testing.T) {
	_, command, _ := strings.Cut(text(t, guide), "$ helm install envoy-rls deploy/helm/envoy-rls ")
	command, _, _ = strings.Cut(command, "\n")
	set := map[string]any{}
	for _, m := range regexp.MustCompile(`--set '?([^'\s]+)`).FindAllStringSubmatch(command, -1) {
		if err := strvals.ParseInto(m[1], set); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := render(t, set); err != nil {
		t.Errorf("%s: %v", command, err)
	}
	if len(set) == 0 || !strings.Contains(command, "-n "+namespace+" ") {
		t.Errorf("the command is %q", command)
	}
}

func TestTheGuidesValuesAreTheChartsAndItsRulesAreMounted(t *testing.T) {
	_, block, _ := strings.Cut(text(t, guide), "```yaml\n")
	block, _, _ = strings.Cut(block, "```")
	all := chart(t, block)
	for _, name := range []string{"ServiceMonitor envoy-rls", "PrometheusRule envoy-rls", "ConfigMap envoy-rls-rules", "NetworkPolicy envoy-rls"} {
		if all[name] == nil {
			t.Errorf("no %s", name)
		}
	}
}

func TestThePortsThatTheGuideSaysAreOpenAre(t *testing.T) {
	_, section, _ := strings.Cut(text(t, guide), "\n## Secrets and ports\n")
	section, _, _ = strings.Cut(section, "\n## ")
	said, block, _ := strings.Cut(section, "```yaml\n")
	block, _, _ = strings.Cut(block, "```")
	ports := reachable(t, block)
	for _, port := range ports {
		if !strings.Contains(said, port) {
			t.Errorf("%s is open, which the guide does not say", port)
		}
	}
	if len(ports) != 2 {
		t.Errorf("%q are open", ports)
	}
}

func TestEveryObjectInTheDocumentsIsWhatItsGatewayKnows(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(repository, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	for _, page := range pages {
		name := filepath.Join("docs", filepath.Base(page))
		for _, m := range regexp.MustCompile("(?ms)^```yaml\n(apiVersion: .*?)^```$").FindAllStringSubmatch(text(t, name), -1) {
			gatewayObject(t, name, []byte(m[1]))
			shown++
		}
	}
	if shown < 5 {
		t.Errorf("the documents show %d objects", shown)
	}
}
