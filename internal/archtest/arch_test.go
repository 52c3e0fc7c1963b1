// Package archtest holds the project to its architecture.
package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	module = "github.com/envoy-rls/envoy-rls/"
	root   = "../.."
)

// arrows are the imports that a package may have of this module's own, tests apart. What isn't listed may
// have none.
var arrows = map[string][]string{
	"cmd/envoy-rls": {
		"internal/accesslog", "internal/simulate",
		"pkg/admin", "pkg/certs", "pkg/console", "pkg/decisionlog", "pkg/denycache", "pkg/descriptors", "pkg/envoycheck", "pkg/fallback",
		"pkg/limiter", "pkg/memstore", "pkg/metrics", "pkg/overrides", "pkg/parts", "pkg/redisstore", "pkg/rls", "pkg/statsd", "pkg/top",
		"pkg/tracing", "pkg/unmatched", "pkg/xds",
	},
	"pkg/statsd":  {"pkg/metrics"},
	"pkg/metrics": {"pkg/rls", "pkg/descriptors", "pkg/limiter"},
	"pkg/rls":     {"pkg/descriptors", "pkg/limiter"},
	"pkg/tracing": {"pkg/rls"},
	"pkg/admin":   {"pkg/descriptors", "pkg/limiter", "pkg/overrides"},

	"pkg/decisionlog": {"pkg/rls"},
	"pkg/top":         {"pkg/rls", "pkg/descriptors"},

	"pkg/denycache":   {"pkg/limiter"},
	"pkg/descriptors": {"pkg/limiter"},
	"pkg/envoycheck":  {"pkg/descriptors"},
	"pkg/memstore":    {"pkg/limiter"},
	"pkg/overrides":   {"pkg/descriptors"},
	"pkg/fallback":    {"pkg/limiter", "pkg/memstore"},
	"pkg/parts":       {"pkg/limiter"},
	"pkg/redisstore":  {"pkg/certs", "pkg/limiter", "pkg/parts", "lua"},
	"pkg/storetest":   {"pkg/limiter"},
	"pkg/xds":         {"pkg/certs", "pkg/descriptors"},
	"pkg/unmatched":   {"pkg/descriptors"},

	"internal/simulate": {"internal/accesslog", "internal/chart", "pkg/descriptors", "pkg/memstore", "pkg/rls"},
	"internal/figures":  {"internal/chart", "internal/simulate", "pkg/descriptors", "pkg/limiter"},
}

// owners are the only packages that may import a library, by the start of its path.
var owners = map[string][]string{
	"github.com/redis/go-redis":              {"pkg/redisstore", "internal/proctest", "cmd/envoy-rls"},
	"github.com/prometheus/":                 {"pkg/metrics"},
	"github.com/DataDog/":                    {"pkg/statsd"},
	"github.com/fsnotify/fsnotify":           {"pkg/descriptors"},
	"gopkg.in/yaml.v3":                       {"pkg/descriptors", "pkg/envoycheck"},
	"google.golang.org/grpc":                 {"pkg/rls", "pkg/xds", "pkg/metrics", "pkg/tracing", "pkg/decisionlog", "cmd/envoy-rls", "internal/proctest", "internal/simulate"},
	"google.golang.org/protobuf":             {"pkg/rls", "pkg/xds", "cmd/envoy-rls", "internal/proctest", "internal/simulate"},
	"github.com/envoyproxy/go-control-plane": {"pkg/rls", "pkg/xds", "cmd/envoy-rls", "internal/proctest", "internal/simulate"},
	"github.com/tidwall/gjson":               {"internal/accesslog"},
	"github.com/alecthomas/kong":             {"cmd/envoy-rls"},
	"go.opentelemetry.io/":                   {"pkg/tracing", "cmd/envoy-rls", "internal/proctest"},
}

func TestOnlyTheAllowedArrowsExist(t *testing.T) {
	for pkg, imports := range packages(t) {
		for _, path := range imports {
			if !allowed(pkg, path) {
				t.Errorf("%s imports %s", pkg, path)
			}
		}
	}
}

func allowed(pkg, path string) bool {
	if own, ours := strings.CutPrefix(path, module); ours {
		return slices.Contains(arrows[pkg], own)
	}
	for library, owners := range owners {
		if strings.HasPrefix(path, library) {
			return slices.Contains(owners, pkg)
		}
	}
	return true
}

func TestTheDomainImportsTheStandardLibraryOnly(t *testing.T) {
	for _, path := range packages(t)["pkg/limiter"] {
		if strings.Contains(path, ".") {
			t.Errorf("pkg/limiter imports %s", path)
		}
	}
}

// packages lists the imports, tests apart, of the module's packages that make up the program.
func packages(t *testing.T) map[string][]string {
	t.Helper()
	cmd := exec.Command("go", "list", "-f", "{{.ImportPath}} {{join .Imports \" \"}}", "./cmd/...", "./pkg/...", "./lua", "./internal/...")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	list := map[string][]string{}
	for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		words := strings.Fields(line)
		list[strings.TrimPrefix(words[0], module)] = words[1:]
	}
	if len(list) < len(arrows) {
		t.Fatalf("found %d packages only", len(list))
	}
	return list
}

// maxNesting is how deep blocks may be nested in a function; the linter doesn't count loops over ranges.
const maxNesting = 3

func TestFunctionsNestAtMostThreeDeep(t *testing.T) {
	files := token.NewFileSet()
	for _, dir := range []string{"cmd", "pkg", "internal", "lua"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" {
				return err
			}
			file, err := parser.ParseFile(files, path, nil, 0)
			if err != nil {
				return err
			}
			for _, problem := range deep(files, file) {
				t.Error(problem)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// deep reports the innermost statements of functions that nest too deep.
func deep(files *token.FileSet, file *ast.File) []string {
	var problems []string
	var stack []ast.Node
	depth := func() int {
		n := 0
		for i := len(stack) - 1; i >= 0; i-- {
			switch stack[i].(type) {
			case *ast.FuncDecl, *ast.FuncLit:
				return n
			case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt, *ast.SwitchStmt, *ast.TypeSwitchStmt, *ast.SelectStmt:
				n++
			}
		}
		return n
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if n == nil {
			stack = stack[:len(stack)-1]
			return true
		}
		stack = append(stack, n)
		if d := depth(); d > maxNesting {
			problems = append(problems, fmt.Sprintf("%s: nested %d deep", files.Position(n.Pos()), d))
			stack = stack[:len(stack)-1]
			return false
		}
		return true
	})
	return problems
}
