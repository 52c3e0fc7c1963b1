package monitoring

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	grafana "github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// dashboard is what this test reads of Grafana's format.
type dashboard struct {
	Panels      []panel
	Annotations struct{ List []target }
	Templating  struct {
		List []struct {
			Name, Type, Definition string
			Datasource             source
			AllValue               string
		}
	}
}

type panel struct {
	ID                       int
	Type, Title, Description string
	Datasource               source
	GridPos                  struct{ X, Y, W, H int }
	FieldConfig              struct{ Defaults struct{ Unit string } }
	Targets                  []target
}

type target struct {
	Name, Expr, LegendFormat string
	Datasource               source
}

type source struct{ Type, UID string }

// chosen is the data source that the dashboard's variable says.
var chosen = source{"prometheus", "${datasource}"}

// units are those of Grafana that panels may have.
var units = []string{"reqps", "ops", "cps", "s", "bytes", "short", "percentunit", "none"}

func dashboardText(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(proctest.Root(), "deploy", "grafana", "envoy-rls.json"))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func readDashboard(t *testing.T) *dashboard {
	t.Helper()
	d := &dashboard{}
	if err := json.Unmarshal(dashboardText(t), d); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestEveryFieldOfTheDashboardIsOneOfGrafana also breaks a field of a panel, and one of a query: their types know them, too.
func TestEveryFieldOfTheDashboardIsOneOfGrafana(t *testing.T) {
	plugins.RegisterDefaultPlugins()
	text := string(dashboardText(t))
	wrong := func(text string) error {
		//nolint:staticcheck // its successor is another format, which older Grafanas don't import
		var d grafana.Dashboard
		if err := d.UnmarshalJSONStrict([]byte(text)); err != nil && err.Error() != "" { // it is an empty one if all is well
			return err
		}
		return d.Validate()
	}
	if err := wrong(text); err != nil {
		t.Error(err)
	}
	for _, field := range []string{"colorMode", "fillOpacity", "legendFormat"} {
		if err := wrong(strings.Replace(text, `"`+field+`"`, `"my`+field+`"`, 1)); err == nil {
			t.Errorf("without %s it is none the worse", field)
		}
	}
}

// graphs are the panels that show something.
func (d *dashboard) graphs() []panel {
	return slices.DeleteFunc(slices.Clone(d.Panels), func(p panel) bool { return p.Type == "row" })
}

func TestEveryPanelSaysWhatItShows(t *testing.T) {
	d := readDashboard(t)
	taken, ids := map[[2]int]string{}, map[int]bool{}
	for _, p := range d.Panels {
		if ids[p.ID] {
			t.Errorf("%s: its id is another panel's", p.Title)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("%s lies over %q, or outside", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
	for _, p := range d.graphs() {
		if p.Title == "" || !strings.HasSuffix(p.Description, ".") || !slices.Contains(units, p.FieldConfig.Defaults.Unit) {
			t.Errorf("%q is described as %q, in %q", p.Title, p.Description, p.FieldConfig.Defaults.Unit)
		}
		if p.Datasource != chosen || len(p.Targets) == 0 {
			t.Errorf("%s: %d queries to %v", p.Title, len(p.Targets), p.Datasource)
		}
		for _, q := range p.Targets {
			if q.Datasource != chosen {
				t.Errorf("%s: a query to %v", p.Title, q.Datasource)
			}
		}
	}
}

// TestEveryPanelShowsSomething has all happen that there are panels for.
func TestEveryPanelShowsSomething(t *testing.T) {
	t.Parallel()
	f := story(t)
	d := readDashboard(t)
	for _, p := range d.graphs() {
		for _, q := range p.Targets {
			f.shows(p.Title, q)
		}
	}
	for _, q := range d.Annotations.List {
		if q.Datasource != chosen {
			t.Errorf("%s asks %v", q.Name, q.Datasource)
		}
		f.query(filled(q.Expr)) // it fails if that is no query
	}
	for _, v := range d.Templating.List {
		if v.Type == "datasource" {
			continue
		}
		m := regexp.MustCompile(`^label_values\((.*), (\w+)\)$`).FindStringSubmatch(v.Definition)
		if m == nil || v.Datasource != chosen || v.AllValue != ".*" || m[2] != v.Name {
			t.Fatalf("%s is %q of %v", v.Name, v.Definition, v.Datasource)
		}
		f.shows("$"+v.Name, target{Expr: fmt.Sprintf("count by (%s) (%s)", m[2], m[1]), LegendFormat: "{{" + m[2] + "}}"})
	}
}

// filled is a query as Grafana sends it, with all of each variable and an interval of two minutes.
func filled(query string) string {
	return strings.NewReplacer("$__rate_interval", "2m", "$job", ".*", "$domain", ".*", "$rule", ".*").Replace(query)
}

// shows tells what is wrong with a query: it has no series, one without a number, or one that lacks what its legend names.
func (f *fleet) shows(title string, q target) {
	f.t.Helper()
	list := f.query(filled(q.Expr))
	if len(list) == 0 {
		f.t.Errorf("%s: nothing is shown by %s", title, q.Expr)
	}
	named := map[string]bool{}
	for _, s := range list {
		if math.IsNaN(s.F) {
			f.t.Errorf("%s: %s has no number by %s", title, s.Metric, q.Expr)
		}
		for _, m := range regexp.MustCompile(`{{(\w+)}}`).FindAllStringSubmatch(q.LegendFormat, -1) {
			named[m[1]] = named[m[1]] || s.Metric.Get(m[1]) != ""
		}
	}
	for label, found := range named {
		if !found {
			f.t.Errorf("%s: no series has the label %s of its legend", title, label)
		}
	}
}

const storyRules = `domain: shop
descriptors:
  - {key: user, rate_limit: {unit: year, requests_per_unit: 1000000}}
  - {key: few, rate_limit: {unit: year, requests_per_unit: 10}}
  - {key: tried, shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: address, max_values: 10, rate_limit: {unit: year, requests_per_unit: 1000000}}
`

// story is a fleet in which all has happened that panels are for: of two replicas, one has its rules from a control plane, and
// speaks TLS.
func story(t *testing.T) *fleet {
	t.Helper()
	plane, authority := proctest.StartControlPlane(t), proctest.NewAuthority(t)
	plane.Set("default", "1", proctest.Resource("gateway", 1000000))
	authority.Sign("server")
	f := startFleet(t, 1)
	second := f.add("--config-type=xds", "--xds-server="+plane.Addr,
		"--grpc-tls", "--grpc-tls-cert="+authority.File("server.crt"), "--grpc-tls-key="+authority.File("server.key"))
	f.push("domain: shop\ndescriptors: 7\n", f.replicas...)
	f.push(storyRules, f.replicas...)
	f.pass(2*time.Minute, interval)

	first := f.replicas[0]
	for range 20 {
		first.ask(patience, "shop", descriptor("few", "ann"))
		first.ask(patience, "shop", descriptor("tried", "ann"))
	}
	first.ask(patience, "shop", &common.RateLimitDescriptor{})
	unusable := descriptor("user", "ann")
	unusable.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 1} // without a unit
	first.ask(patience, "shop", unusable)
	makesUpValues(f)
	f.redis.Signal(syscall.SIGSTOP)
	f.leave()
	f.redis.Kill()
	f.pass(time.Minute, interval)
	redisComesBack(f)
	proctest.Eventually(t, "what was admitted locally is given back", func() bool {
		return first.Metric("envoy_rls_given_back_hits_total") > 0 && second.Metric("envoy_rls_store_up") == 1
	})
	f.usual = func(f *fleet) {
		usualCalls(f)
		f.ask(2, "shop", "nobody")
		f.ask(2, "nowhere", "user")
		f.ask(2, "gateway", "user")
	}
	f.pass(3*time.Minute, interval)
	return f
}

// TestEveryMetricThatIsAskedForIsDescribed reads the queries of alerts and panels.
func TestEveryMetricThatIsAskedForIsDescribed(t *testing.T) {
	described, err := os.ReadFile(filepath.Join(proctest.Root(), "docs", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	var queries []string
	for _, r := range newPrometheus(t).alerts() {
		queries = append(queries, r.Query().String())
	}
	for _, p := range readDashboard(t).graphs() {
		for _, q := range p.Targets {
			queries = append(queries, filled(q.Expr))
		}
	}
	for _, text := range queries {
		expr, err := parser.NewParser(parser.Options{}).ParseExpr(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
			s, ok := n.(*parser.VectorSelector)
			if !ok || !strings.HasPrefix(s.Name, "envoy_rls_") {
				return nil
			}
			name := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(s.Name, "")
			if !strings.Contains(string(described), "`"+name+"`") {
				t.Errorf("docs/metrics.md doesn't know %s", name)
			}
			return nil
		})
	}
}
