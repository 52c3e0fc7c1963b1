package main

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/alecthomas/kong"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// documents are the repository's pages, by their paths in it.
func documents(t *testing.T) map[string]string {
	t.Helper()
	pages := map[string]string{}
	err := filepath.WalkDir(proctest.Root(), func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != proctest.Root():
			return filepath.SkipDir
		case filepath.Ext(path) != ".md":
			return nil
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel(proctest.Root(), path) // it is below
		pages[name] = string(text)
		return err
	})
	if err != nil || len(pages) < 40 {
		t.Fatalf("%d pages: %v", len(pages), err)
	}
	return pages
}

var (
	fence       = regexp.MustCompile("(?ms)^```(\\S*)( [^\n]*)?\n(.*?)^```$")
	heading     = regexp.MustCompile("(?m)^#+ (.+)$")
	link        = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	codeSpan    = regexp.MustCompile("`([^`\n]+)`")
	commandCall = regexp.MustCompile(`^(?:\$ )?(?:[^|]*\| )?(?:[A-Z_]+=\S+ |kubectl .* -- /bin/|go run \./cmd/)*envoy-rls( .*)?$`)
)

// anchor is what a link to a heading ends in.
func anchor(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
}

func TestEveryLinkInTheDocumentsLeadsSomewhere(t *testing.T) {
	pages := documents(t)
	for name, text := range pages {
		for _, m := range link.FindAllStringSubmatch(codeSpan.ReplaceAllString(fence.ReplaceAllString(text, ""), ""), -1) {
			if !leads(pages, name, m[1]) {
				t.Errorf("%s: the link to %s leads nowhere", name, m[1])
			}
		}
	}
}

// leads tells whether there is what a page's link is to, by its file and its heading.
func leads(pages map[string]string, page, to string) bool {
	if strings.Contains(to, "://") {
		return true
	}
	file, section, _ := strings.Cut(to, "#")
	target := page
	if file != "" {
		target = filepath.Join(filepath.Dir(page), file)
	}
	_, err := os.Stat(filepath.Join(proctest.Root(), target))
	return err == nil && (section == "" || hasSection(pages[target], section))
}

func hasSection(page, section string) bool {
	for _, h := range heading.FindAllStringSubmatch(fence.ReplaceAllString(page, ""), -1) {
		if anchor(h[1]) == section {
			return true
		}
	}
	return false
}

// TestEveryPageIsInTheIndex looks for the pages of docs in docs/README.md.
func TestEveryPageIsInTheIndex(t *testing.T) {
	pages := documents(t)
	for name := range pages {
		if page, in := strings.CutPrefix(name, "docs/"); in && !strings.Contains(page, "/") && page != "README.md" &&
			!strings.Contains(pages["docs/README.md"], "("+page+")") {
			t.Errorf("docs/README.md has no link to %s", page)
		}
	}
}

// TestEveryCommandInTheDocumentsIsOneOfTheProgram looks the commands up, and their flags, in blocks and in sentences.
func TestEveryCommandInTheDocumentsIsOneOfTheProgram(t *testing.T) {
	var problems settingProblems
	program := kong.Must(&commandLine{}, settingDefaults(false), problems.mappers(), kong.Vars{"version": ""})
	looked := 0
	for name, text := range documents(t) {
		var lines []string
		for _, m := range fence.FindAllStringSubmatch(text, -1) {
			lines = append(lines, strings.Split(m[3], "\n")...)
		}
		for _, m := range codeSpan.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			lines = append(lines, m[1])
		}
		for _, line := range lines {
			m := commandCall.FindStringSubmatch(line)
			if m == nil {
				continue
			}
			looked++
			if problem := notOf(program.Model.Node, strings.Fields(m[1])); problem != "" {
				t.Errorf("%s: %s: there is no %s", name, line, problem)
			}
		}
	}
	if looked < 40 {
		t.Errorf("the documents have %d commands", looked)
	}
}

// notOf is the first of the arguments that the program doesn't know: a command, or a flag of one.
func notOf(program *kong.Node, args []string) string {
	if len(args) == 0 {
		return ""
	}
	nodes := []*kong.Node{program}
	for at := program; len(at.Children) > 0 && len(args) > 0 && !strings.HasPrefix(args[0], "-"); args = args[1:] {
		i := slices.IndexFunc(at.Children, func(n *kong.Node) bool { return n.Name == args[0] })
		if i < 0 {
			return args[0]
		}
		at = at.Children[i]
		nodes = append(nodes, at)
	}
	for _, arg := range args {
		name, _, _ := strings.Cut(arg, "=")
		if !regexp.MustCompile(`^--?[a-z]`).MatchString(name) {
			continue
		}
		known := slices.ContainsFunc(nodes, func(n *kong.Node) bool {
			return slices.ContainsFunc(n.Flags, func(f *kong.Flag) bool {
				return name == "--"+f.Name || f.Short != 0 && name == "-"+string(f.Short)
			})
		})
		if !known {
			return name
		}
	}
	return ""
}

// otherBlocks are those of YAML that are neither rules nor objects of Kubernetes nor a recipe's: how many a page has, and the
// test that reads them.
var otherBlocks = map[string]struct {
	blocks int
	test   string
}{
	"docs/envoy.md":      {1, "TestTheDocumentsExampleIsTrue"},
	"docs/kubernetes.md": {2, "TestTheGuidesValuesAreTheChartsAndItsRulesAreMounted"},
	"docs/migration.md":  {1, "TestTheFilterOfTheMigrationIsValid"},
	"docs/tracing.md":    {2, "TestACallIsBelowEnvoysSpanInItsTrace"},
}

// TestEveryBlockOfYAMLIsReadByATest counts those that are not rules, which TestEveryRuleFileInTheDocumentsCompiles reads, nor
// objects, of which TestEveryObjectInTheDocumentsIsWhatItsGatewayKnows has those of docs, nor in a recipe.
func TestEveryBlockOfYAMLIsReadByATest(t *testing.T) {
	for name, text := range documents(t) {
		blocks, inDocs := 0, filepath.Dir(name) == "docs"
		for _, m := range fence.FindAllStringSubmatch(text, -1) {
			switch {
			case m[1] != "yaml":
			case strings.HasPrefix(m[3], "domain:") && (inDocs || name == "README.md"):
			case strings.HasPrefix(m[3], "apiVersion:") && inDocs:
			case m[2] == " envoy" && name == "docs/recipes.md":
			default:
				blocks++
			}
		}
		if blocks != otherBlocks[name].blocks {
			t.Errorf("%s has %d other blocks of YAML, want %d: each needs a test", name, blocks, otherBlocks[name].blocks)
		}
	}
	for name, o := range otherBlocks {
		if err := exec.Command("grep", "-rqF", "--include=*_test.go", "func "+o.test+"(", proctest.Root()).Run(); err != nil {
			t.Errorf("%s counts on %s, which is gone: %v", name, o.test, err)
		}
	}
}

// TestTheAnswersToQuestionsAreTrue runs the commands of docs/faq.md, each beside the rules that its answer shows.
func TestTheAnswersToQuestionsAreTrue(t *testing.T) {
	file, ran := "", 0
	for _, m := range fence.FindAllStringSubmatch(documents(t)["docs/faq.md"], -1) {
		if m[1] == "yaml" {
			file = filepath.Join(t.TempDir(), "rules.yaml")
			if err := os.WriteFile(file, []byte(m[3]), 0o600); err != nil {
				t.Fatal(err)
			}
			continue
		}
		command, want, _ := strings.Cut(m[3], "\n")
		cmd := exec.Command(proctest.Binary(t), strings.Fields(strings.TrimPrefix(command, "$ envoy-rls "))...)
		cmd.Dir = filepath.Dir(file)
		out, _ := cmd.CombinedOutput() // an exit of 3 is no match
		if string(out) != want {
			t.Errorf("%s prints\n%s\nthe answer says\n%s", command, out, want)
		}
		ran++
	}
	if ran < 3 {
		t.Errorf("there are %d commands", ran)
	}
}
