package main

import (
	"fmt"
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

// operator follows a page in a directory of their own. What the page has in mind runs on ports that nobody else has.
type operator struct {
	t    *testing.T
	dir  string
	env  []string // of commands, and of services that the page starts
	here []string // what the page calls things, and what they are called here, in turn
	logs []*proctest.Process
	// ends are the statuses of commands that don't end with 0, by how they begin; exact is how those begin that print the very text.
	ends  map[string]int
	exact string
	// while is what happens as a command runs that goes on, by how it begins.
	while map[string]func()
}

// pages are the documents whose commands are run here: the console blocks, unless that is done elsewhere, and what is asked of
// servers in sentences. Each has what makes the things be there that it is about.
var pages = map[string]func(*operator){
	"README.md":         (*operator).aService,
	"docs/envoy.md":     (*operator).anEnvoy,
	"docs/explain.md":   (*operator).twoReplicasInMemory,
	"docs/faq.md":       (*operator).aService,
	"docs/metrics.md":   (*operator).aService,
	"docs/migration.md": func(o *operator) { o.write("rules/shop.yaml", shopRules) },
	"docs/overrides.md": (*operator).aServiceWithTokens,
	"docs/refusals.md":  (*operator).threeReplicas,
	"docs/runbook.md":   (*operator).incidents,
	"docs/security.md":  (*operator).aRedis,
	"docs/sizing.md":    (*operator).aRedis,
	"docs/tracing.md":   (*operator).aCollector,
}

// elsewhere are the documents whose console blocks have a test of their own, or none, and why.
var elsewhere = map[string]struct{ test, why string }{
	"CONTRIBUTING.md":         {why: "they run this test"},
	"README.md":               {test: "TestTheReadmeIsTrue"},
	"bench/README.md":         {why: "a run takes minutes, and two cores for itself"},
	"docs/faq.md":             {test: "TestTheAnswersToQuestionsAreTrue"},
	"docs/getting-started.md": {test: "TestWhoeverFollowsGettingStartedSeesWhatItSays"},
	"docs/kubernetes.md":      {test: "TestEveryKubectlCommandOfTheDocumentsFitsWhatIsDeployed", why: "they take a cluster"},
	"docs/performance.md":     {why: "a run takes minutes, and two cores for itself"},
	"docs/simulate.md":        {test: "TestThePageOfSimulateIsTrue"},
}

// notRun are commands that can't be run here, and why.
var notRun = []struct {
	command *regexp.Regexp
	why     string
}{
	{regexp.MustCompile(`^kubectl (.* )?port-forward`), "the ports are this machine's own"},
	{
		regexp.MustCompile(`^kubectl (-n \S+ )?(get pods?|describe|top|apply)\b`),
		"it takes a cluster: TestEveryKubectlCommandOfTheDocumentsFitsWhatIsDeployed takes it apart",
	},
}

// goesOn are commands that end when they are interrupted.
var goesOn = regexp.MustCompile(`envoy-rls (serve|top)\b|--latency-history`)

// inSentence is a command between words that asks a server.
var inSentence = regexp.MustCompile("`((?:curl|redis-cli|openssl|kubectl) [^`\n]+)`")

func TestTheCommandsOfPagesDoWhatIsSaid(t *testing.T) {
	for _, page := range slices.Sorted(maps.Keys(pages)) {
		t.Run(filepath.Base(page), func(t *testing.T) {
			o := newOperator(t)
			pages[page](o)
			var blocks []block
			if _, is := elsewhere[page]; !is {
				blocks = consoleBlocks(t, page)
			}
			for _, m := range inSentence.FindAllStringSubmatch(fence.ReplaceAllString(documents(t)[page], ""), -1) {
				blocks = append(blocks, block{command: m[1]})
			}
			for _, b := range blocks {
				o.follow(b)
			}
			if len(blocks) == 0 {
				t.Error("it has no commands")
			}
		})
	}
}

// TestEveryCommandOfTheDocumentsIsRun looks for the tests of all pages that have a console block, or a command in a sentence that
// is run here, and for commands in other blocks.
func TestEveryCommandOfTheDocumentsIsRun(t *testing.T) {
	for name, text := range documents(t) {
		other := elsewhere[name]
		for _, m := range fence.FindAllStringSubmatch(text, -1) {
			switch {
			case m[1] == "yaml":
			case m[1] == "console" && pages[name] == nil && other.test+other.why == "":
				t.Errorf("%s has a block of console that no test runs", name)
			case m[1] != "console" && commandInBlock.MatchString(m[3]):
				t.Errorf("%s: %s is in a block that is none of console", name, commandInBlock.FindString(m[3]))
			}
		}
		for _, m := range inSentence.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			if pages[name] == nil && !isNotRun(m[1]) {
				t.Errorf("%s: no test runs %s", name, m[1])
			}
		}
	}
	for name, o := range elsewhere {
		if o.test == "" {
			continue
		}
		if err := exec.Command("grep", "-rqF", "--include=*_test.go", "func "+o.test+"(", proctest.Root()).Run(); err != nil {
			t.Errorf("%s counts on %s, which is gone: %v", name, o.test, err)
		}
	}
}

// commandInBlock is a line that is a command by its looks.
var commandInBlock = regexp.MustCompile(`(?m)^(\$ |envoy-rls |kubectl |curl |redis-cli ).*`)

func isNotRun(command string) bool {
	for _, n := range notRun {
		if n.command.MatchString(command) {
			return true
		}
	}
	return false
}

// kubectl has what the operator's cluster would have: commands in replicas, their logs, their rules and certificate.
const kubectl = `#!/bin/sh
case "$*" in
*" -- "*) while [ "$1" != -- ]; do shift; done; shift; exec "$@" ;;
*" logs "*) cat logs ;;
*"get configmap"*) cat configmap.yaml ;;
*"get secret"*) base64 -w0 server.crt ;;
*"get envoyfilter"*) cat envoyfilter.yaml ;;
*) echo "no cluster has $*" >&2; exit 1 ;;
esac
`

func newOperator(t *testing.T) *operator {
	t.Helper()
	o := &operator{t: t, dir: t.TempDir(), ends: map[string]int{}, while: map[string]func(){}}
	o.write("bin/kubectl", kubectl)
	if err := os.Chmod(filepath.Join(o.dir, "bin", "kubectl"), 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	if err := os.Symlink(proctest.Binary(t), filepath.Join(o.dir, "bin", "envoy-rls")); err != nil {
		t.Fatal(err)
	}
	o.env = []string{
		"PATH=" + filepath.Join(o.dir, "bin") + string(os.PathListSeparator) + os.Getenv("PATH"), "NS=ratelimit", "POD=envoy-rls-0",
		"HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", fmt.Sprint("GRPC_PORT=", proctest.FreePort(t)),
		fmt.Sprint("PORT=", proctest.FreePort(t)), fmt.Sprint("DEBUG_PORT=", proctest.FreePort(t)), "DRAIN_DELAY=0s",
	}
	o.here = []string{"/bin/envoy-rls", "envoy-rls", "curl ", "curl --fail-with-body "}
	return o
}

// write writes a file of the operator's.
func (o *operator) write(name, text string) {
	o.t.Helper()
	file := filepath.Join(o.dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		o.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		o.t.Fatal(err)
	}
}

func repositoryFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(proctest.Root(), name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// variable gives what is said of the environment.
func (o *operator) variable(name string) (value string) {
	for _, v := range o.env {
		if v, is := strings.CutPrefix(v, name+"="); is {
			value = v
		}
	}
	return value
}

var exported = regexp.MustCompile(`^export (\w+)=(\S+)`)

// follow runs a command, and compares its end and what it prints with what the page says.
func (o *operator) follow(b block) {
	o.t.Helper()
	if isNotRun(b.command) {
		return
	}
	command := strings.NewReplacer(o.here...).Replace(b.command)
	if m := exported.FindStringSubmatch(command); m != nil {
		o.env = append(o.env, m[1]+"="+m[2])
		return
	}
	if goesOn.MatchString(b.command) {
		o.watch(b, command)
		return
	}
	var logs strings.Builder
	for _, p := range o.logs {
		logs.WriteString(p.Output())
	}
	o.write("logs", logs.String())
	cmd := exec.Command("bash", "-c", command)
	cmd.Dir, cmd.Env, cmd.Stdin = o.dir, append(os.Environ(), o.env...), strings.NewReader("y\n")
	out, err := cmd.CombinedOutput()
	status, refused := cmd.ProcessState.ExitCode(), strings.HasPrefix(string(out), "ERR ") // by Redis, of which redis-cli thinks nothing
	if status != o.ends[beginning(o.ends, b.command)] || refused {
		o.t.Errorf("%s ends with %d (%v):\n%s", command, status, err, out)
	}
	if len(b.output) > 0 && !o.isShown(b, string(out)) {
		o.t.Errorf("%s prints\n%s\nthe page says\n%s", command, out, strings.Join(b.output, "\n"))
	}
}

// isShown tells whether a command printed what its block says.
func (o *operator) isShown(b block, printed string) bool {
	if o.exact != "" && strings.HasPrefix(b.command, o.exact) {
		return strings.TrimSpace(printed) == strings.Join(b.output, "\n")
	}
	return regexp.MustCompile("^" + shown(b.output) + "$").MatchString(form(printed))
}

// watch starts a command that goes on, and waits for what it is said to print, and for a service to be ready.
func (o *operator) watch(b block, command string) {
	o.t.Helper()
	p := proctest.StartIn(o.t, o.dir, o.env, "bash", "-c", "exec env "+command)
	if meanwhile := o.while[beginning(o.while, b.command)]; meanwhile != nil {
		meanwhile()
	}
	want := regexp.MustCompile(shown(b.output))
	proctest.Eventually(o.t, strings.Join(append([]string{command + " prints"}, b.output...), "\n"), func() bool {
		ready := !strings.Contains(command, " serve") || strings.Contains(p.Output(), "msg=ready")
		return ready && p.Output() != "" && want.MatchString(form(p.Output()))
	})
	p.Kill()
}

// beginning is the key that a command begins with.
func beginning[V any](m map[string]V, command string) string {
	for key := range m {
		if strings.HasPrefix(command, key) {
			return key
		}
	}
	return ""
}

var (
	varies = regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:.]+Z|(\d+\.){3}\d+(:\d+)?|\b[0-9a-f]{8,}\b|(\d+(\.\d+)?(h|ms|m|µs|s)?)+`)
	spaces = regexp.MustCompile(` +`)
)

// form is what a text looks like whatever was counted, when, and where.
func form(text string) string {
	return spaces.ReplaceAllString(varies.ReplaceAllString(text, "N"), " ")
}

// shown is a pattern of what the form of a text must be like. A line of … is any number of lines.
func shown(lines []string) (pattern string) {
	for _, line := range lines {
		if line == "…" {
			pattern += "(?:.*\n)*"
			continue
		}
		pattern += regexp.QuoteMeta(form(line)) + "\n"
	}
	return pattern
}
