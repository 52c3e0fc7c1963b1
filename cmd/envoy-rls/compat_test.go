package main

import (
	"bytes"
	_ "embed"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/template"

	"github.com/alecthomas/kong"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// totalOldVariables is how many variables the replaced service reads itself.
const totalOldVariables = 114

// serveFlags are the settings in a mode, by each of their variables.
func serveFlags(t *testing.T, compat bool) map[string]*kong.Flag {
	t.Helper()
	var problems settingProblems
	parser, err := kong.New(&commandLine{}, settingDefaults(compat), problems.mappers(), kong.Vars{"version": ""})
	if err != nil {
		t.Fatal(err)
	}
	flags := map[string]*kong.Flag{}
	serve := slices.IndexFunc(parser.Model.Children, func(n *kong.Node) bool { return n.Name == "serve" })
	for _, f := range parser.Model.Children[serve].Flags {
		for _, env := range f.Envs {
			flags[env] = f
		}
	}
	return flags
}

func TestEveryVariableOfTheReplacedServiceHasAFate(t *testing.T) {
	flags := serveFlags(t, true)
	if len(oldVariables) != totalOldVariables || !slices.IsSortedFunc(oldVariables, func(a, b oldVariable) int {
		return strings.Compare(a.name, b.name)
	}) {
		t.Errorf("there are %d variables, want %d in order", len(oldVariables), totalOldVariables)
	}
	for _, v := range oldVariables {
		if wrong := v.wrong(flags[v.name]); wrong != "" {
			t.Errorf("%s is %s, and %s", v.name, v.fate, wrong)
		}
	}
}

// wrong says what is wrong with a fate; f is nil if the variable is no setting.
func (v *oldVariable) wrong(f *kong.Flag) string {
	switch {
	case v.fate != same && v.note == "":
		return "nothing says how"
	case v.fate == same && v.ours != "":
		return "yet has another default here"
	case v.fate == notKept && f != nil:
		return "yet a setting"
	case v.fate != notKept && f == nil:
		return "no setting"
	case f != nil && !v.keepsDefault(f):
		return fmt.Sprintf("%q by default; the table says %q there and %q here", f.Default, v.standard, v.ours)
	}
	return ""
}

// keepsDefault tells whether a flag's default is what the table says.
func (v *oldVariable) keepsDefault(f *kong.Flag) bool {
	want := v.standard
	switch v.ours {
	case "":
	case none:
		want = ""
	default:
		want = v.ours
	}
	got := f.Default
	if f.IsBool() && got == "" {
		got = "false"
	}
	return strings.EqualFold(got, want) || got == "0s" && want == "0"
}

func TestOnlyWhatIsMisspeltIsTakenForIt(t *testing.T) {
	var known []string
	for _, v := range oldVariables {
		known = append(known, v.name)
	}
	for name, want := range map[string]string{
		"REDIS_ULR": "REDIS_URL", "REDISURL": "", "GRPC_SERVER_USE_TSL": "GRPC_SERVER_USE_TLS", "LOG_LEVL": "LOG_LEVEL", "REDIS_SSL": "REDIS_TLS",
		"RUNTIME_SUB_DIRECTORY": "RUNTIME_SUBDIRECTORY", "REDIS_URL": "",
		// What others set beside us.
		"REDIS_HOST": "", "REDIS_USER": "", "REDIS_PASSWORD": "", "REDIS_DB": "", "REDIS_PORT": "", "REDIS_SERVICE_HOST": "",
		"REDIS_SERVICE_PORT": "", "REDIS_PORT_6379_TCP": "", "REDIS_PORT_6379_TCP_PROTO": "", "HOSTNAME": "", "HOST_IP": "", "HTTP_PROXY": "",
		"LOG_FILE": "", "LOG_DIR": "", "GRPC_GO_LOG_VERBOSITY_LEVEL": "", "GOMEMLIMIT": "", "PATH": "", "OTEL_SERVICE_NAME": "",
		"RATELIMIT_PORT": "", "DOG_STATSD_MOGRIFIER_A_NAME": "", "GOSTATS_BATCH_ENABLED": "",
	} {
		if got, _ := misspelt(name, known); got != want {
			t.Errorf("%s is taken for %q, want %q", name, got, want)
		}
	}
}

// rewrite is for go generate.
var rewrite = flag.Bool("write", false, "write docs/compat.md")

//go:embed compat.md.tmpl
var compatTemplate string

// compatRow is a row of the table in docs/compat.md.
type compatRow struct {
	Name, Standard, Fate, Flag, Note string
}

func compatRows(t *testing.T) []compatRow {
	t.Helper()
	flags := serveFlags(t, true)
	rows := make([]compatRow, len(oldVariables))
	for i, v := range oldVariables {
		row := compatRow{Name: v.name, Standard: code(v.standard), Fate: string(v.fate), Note: v.note}
		if f := flags[v.name]; f != nil {
			row.Flag = code("--" + f.Name)
		}
		if v.ours != "" {
			row.Standard += ", here " + v.ours
		}
		rows[i] = row
	}
	return rows
}

func code(text string) string {
	if text == "" {
		return "none"
	}
	return "`" + text + "`"
}

// TestCompatMd holds docs/compat.md to the settings and to compat.md.tmpl. With -write it writes it.
func TestCompatMd(t *testing.T) {
	made := template.Must(template.New("").Parse(compatTemplate))
	var want bytes.Buffer
	if err := made.Execute(&want, compatRows(t)); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(proctest.Root(), "docs", "compat.md")
	if *rewrite {
		if err := os.WriteFile(file, want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want.Bytes()) {
		t.Error("docs/compat.md is out of date: go generate ./cmd/envoy-rls")
	}
}

// TestCompatMdTellsOfEachCaseThatIsBetter finds the names of better.yaml's cases, which are links' targets in the text.
func TestCompatMdTellsOfEachCaseThatIsBetter(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(proctest.Root(), "compat", "testdata", "better.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`(?m)^- name: (\w+)$`).FindAllSubmatch(text, -1)
	if len(names) == 0 {
		t.Fatal("better.yaml has no names")
	}
	for _, name := range names {
		if !strings.Contains(compatTemplate, "`"+string(name[1])+"`") {
			t.Errorf("compat.md.tmpl has no word on %s", name[1])
		}
	}
}
