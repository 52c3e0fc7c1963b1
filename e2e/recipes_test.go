package e2e

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// recipe is a section of docs/recipes.md: a configuration of Envoy or of a gateway, rules, and a table of requests.
type recipe struct {
	title, rules, domain string
	envoy                node // parts of deploy/envoy.yaml, by their types
	rows                 []recipeRow
}

// recipeRow is a number of requests that are alike but for #, and their answers.
type recipeRow struct {
	text          string
	times         int
	unanswered    bool
	method, path  string
	headers, said []string // lines of "name: value": the client's, and the upstream's
	statuses      []string
	told          []string // of the last answer's headers
}

var (
	recipeHeading = regexp.MustCompile(`(?m)^##+ `)
	recipeBlock   = regexp.MustCompile("(?ms)^```yaml( envoy)?\n(.*?)^```$")
	codeSpan      = regexp.MustCompile("`([^`]+)`")
	timesPattern  = regexp.MustCompile(`^(?:(\d+) × )?(\d*)`)
)

// TestTheRecipesAreTrue runs docs/recipes.md, whose beginning says how to read it.
func TestTheRecipesAreTrue(t *testing.T) {
	recipes := readRecipes(t)
	const known = 14
	if len(recipes) < known {
		t.Fatalf("docs/recipes.md has %d recipes that can be run", len(recipes))
	}
	dir := t.TempDir()
	for _, r := range recipes {
		if err := os.WriteFile(filepath.Join(dir, r.domain+".yaml"), []byte(r.rules), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	onBothStores(t, func(t *testing.T, store string) {
		k := startKitchen(t, recipes, exactService(t, "--rules="+dir, "--headers", store))
		for _, r := range recipes {
			t.Run(r.title, func(t *testing.T) {
				withinOneWindow(t)
				for _, row := range r.rows {
					k.try(t, r, row)
				}
			})
		}
	})
}

func readRecipes(t *testing.T) (recipes []recipe) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(proctest.Root(), "docs", "recipes.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, section := range recipeHeading.Split(string(text), -1)[1:] {
		r := recipe{}
		r.title, _, _ = strings.Cut(section, "\n")
		for _, m := range recipeBlock.FindAllStringSubmatch(section, -1) {
			switch {
			case m[1] != "":
				r.envoy = parsed(t, m[2])
			case strings.HasPrefix(m[2], "domain: "):
				r.rules = m[2]
				r.domain, _ = parsed(t, m[2])["domain"].(string)
			default:
				r.envoy = sentBy(t, m[2])
			}
		}
		r.rows = recipeRows(t, section)
		if r.envoy == nil {
			continue
		}
		if r.domain == "" || len(r.rows) < 2 {
			t.Fatalf("%s has no rules, or only %d rows", r.title, len(r.rows))
		}
		recipes = append(recipes, r)
	}
	return recipes
}

func parsed(t *testing.T, text string) (n node) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(text), &n); err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	return n
}

// recipeRows reads the table under the columns that tell what is sent and got.
func recipeRows(t *testing.T, section string) (rows []recipeRow) {
	t.Helper()
	var columns []string
	for line := range strings.SplitSeq(section, "\n") {
		if !strings.HasPrefix(line, "|") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if slices.Contains(cells, "gets") {
			columns = cells
			continue
		}
		if columns == nil || strings.HasPrefix(line, "|--") {
			continue
		}
		cell := func(column string) string {
			if i := slices.Index(columns, column); i >= 0 && i < len(cells) {
				return cells[i]
			}
			return ""
		}
		row := recipeRow{
			text: line, times: 1, method: http.MethodGet, path: "/",
			unanswered: cell("when") == "nobody answers", said: spans(cell("the upstream says")), told: spans(cell("gets")),
		}
		row.readRequest(t, cell("a client sends"))
		row.readStatuses(t, cell("gets"))
		rows = append(rows, row)
	}
	return rows
}

func spans(cell string) (list []string) {
	for _, m := range codeSpan.FindAllStringSubmatch(cell, -1) {
		list = append(list, m[1])
	}
	return list
}

func (r *recipeRow) readRequest(t *testing.T, cell string) {
	t.Helper()
	if m := timesPattern.FindStringSubmatch(cell); m[1] != "" {
		r.times, _ = strconv.Atoi(m[1]) // it is digits
	}
	for _, part := range spans(cell) {
		method, path, isCall := strings.Cut(part, " /")
		switch {
		case strings.HasPrefix(part, "/"):
			r.path = part
		case isCall && !strings.Contains(method, ":"):
			r.method, r.path = method, "/"+path
		default:
			r.headers = append(r.headers, part)
		}
	}
}

func (r *recipeRow) readStatuses(t *testing.T, cell string) {
	t.Helper()
	for part := range strings.SplitSeq(codeSpan.ReplaceAllString(cell, ""), ",") {
		m := timesPattern.FindStringSubmatch(strings.TrimSpace(part))
		n := 1
		if m[1] != "" {
			n, _ = strconv.Atoi(m[1]) // it is digits
		}
		if m[2] != "" {
			r.statuses = append(r.statuses, slices.Repeat([]string{m[2]}, n)...)
		}
	}
	if len(r.statuses) != r.times {
		t.Fatalf("%d answers to %d requests: %s", len(r.statuses), r.times, r.text)
	}
}

// kitchen is an Envoy with two listeners for each recipe: one whose calls are answered, and one whose are not.
type kitchen struct {
	gateway *gateway
	ports   map[string]int
	said    *atomic.Pointer[[]string]
}

const nobody = " nobody"

func startKitchen(t *testing.T, recipes []recipe, s *proctest.Service) *kitchen {
	t.Helper()
	k := &kitchen{ports: map[string]int{}, said: &atomic.Pointer[[]string]{}}
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for _, line := range *k.said.Load() {
			name, value, _ := strings.Cut(line, ": ")
			w.Header().Set(name, value)
		}
	}))
	t.Cleanup(upstream.Close)

	bootstrap := operatorsBootstrap(t)
	admin := proctest.FreePort(t)
	at(bootstrap, "admin", "address", "socket_address")["port_value"] = admin
	var listeners []any
	for _, r := range recipes {
		for _, who := range []string{"", nobody} {
			k.ports[r.domain+who] = proctest.FreePort(t)
			listeners = append(listeners, r.listener(t, who, k.ports[r.domain+who]))
		}
	}
	static := at(bootstrap, "static_resources")
	static["listeners"] = listeners
	clusters := static["clusters"].([]any)
	moveTo(clusters[0].(node), s.GRPC)
	moveTo(clusters[1].(node), upstream.Listener.Addr().String())
	away, _ := at(operatorsBootstrap(t), "static_resources")["clusters"].([]any)[0].(node)
	away["name"] = nobody
	at(away, "load_assignment")["cluster_name"] = nobody
	moveTo(away, fmt.Sprint("127.0.0.1:", proctest.FreePort(t)))
	static["clusters"] = append(clusters, away)

	envoyAccepts(t, bootstrap)
	text, err := yaml.Marshal(bootstrap)
	if err != nil {
		t.Fatal(err)
	}
	k.gateway = &gateway{Process: proctest.Envoy(t, string(text), admin)}
	k.gateway.Admin = admin
	return k
}

func operatorsBootstrap(t *testing.T) node {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(proctest.Root(), "deploy", "envoy.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return parsed(t, string(text))
}

// at is the node below the names, where a list stands for its first element.
func at(n node, names ...string) node {
	for _, name := range names {
		below := n[name]
		if list, ok := below.([]any); ok {
			below = list[0]
		}
		n = below.(node)
	}
	return n
}

func moveTo(cluster node, address string) {
	to := at(cluster, "load_assignment", "endpoints", "lb_endpoints", "endpoint", "address", "socket_address")
	to["port_value"], _ = strconv.Atoi(port(address)) // it is a number
}

// listener is that of deploy/envoy.yaml with the recipe's parts. Envoy has time enough to wait for a busy machine, except
// for nobody.
func (r *recipe) listener(t *testing.T, who string, port int) node {
	t.Helper()
	l := at(operatorsBootstrap(t), "static_resources", "listeners")
	l["name"] = r.domain + who
	at(l, "address", "socket_address")["port_value"] = port
	manager := at(l, "filter_chains", "filters", "typed_config")
	manager["stat_prefix"] = r.domain + who
	host := at(manager, "route_config", "virtual_hosts")
	perRoute := at(host, "routes", "typed_per_filter_config", "envoy.filters.http.ratelimit")
	filter := at(manager, "http_filters", "typed_config")
	filter["domain"], filter["failure_mode_deny"] = r.domain, true
	for part, v := range r.envoy {
		values, _ := v.(node)
		switch part {
		case "HttpConnectionManager":
			filters := manager["http_filters"].([]any)
			before, _ := values["http_filters"].([]any)
			maps.Copy(manager, values)
			manager["http_filters"] = slices.Concat(before, filters)
		case "RateLimit":
			maps.Copy(filter, values)
		case "RateLimitPerRoute":
			maps.Copy(perRoute, values)
		case "VirtualHost":
			delete(at(host, "routes"), "typed_per_filter_config")
			maps.Copy(host, values)
		default:
			t.Fatalf("%s has a part for %s", r.title, part)
		}
	}
	if who == nobody {
		at(filter, "rate_limit_service", "grpc_service", "envoy_grpc")["cluster_name"] = nobody
	} else {
		filter["timeout"] = "10s"
	}
	return l
}

func (k *kitchen) try(t *testing.T, r recipe, row recipeRow) {
	t.Helper()
	who := ""
	if row.unanswered {
		who = nobody
	}
	k.said.Store(&row.said)
	for i, status := range row.statuses {
		number := strings.NewReplacer("#", strconv.Itoa(i+1))
		req, err := http.NewRequest(row.method, fmt.Sprintf("http://127.0.0.1:%d", k.ports[r.domain+who]), nil)
		if err != nil {
			t.Fatal(err)
		}
		req.URL.Opaque = "//" + req.URL.Host + number.Replace(row.path) // as it is written
		for _, h := range row.headers {
			name, value, _ := strings.Cut(number.Replace(h), ": ")
			req.Header.Set(name, value)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close() // it is empty
		want := []string{status}
		if i == row.times-1 {
			want = append(want, row.told...)
		}
		for _, problem := range (answer{resp.StatusCode, resp.Header}).differsFrom(want) {
			t.Errorf("request %d of %s: %s", i+1, row.text, problem)
		}
		k.settles(t, r.domain+who)
	}
}

// settles waits until Envoy is done with a request, and with the calls that it makes afterwards.
func (k *kitchen) settles(t *testing.T, listener string) {
	t.Helper()
	proctest.Eventually(t, "Envoy has made all calls", func() bool {
		return k.gateway.stat(t, "http."+listener+".downstream_rq_active") == 0 &&
			k.gateway.stat(t, "cluster.envoy-rls.upstream_rq_pending_active") == 0 &&
			k.gateway.stat(t, "cluster.envoy-rls.upstream_rq_active") == 0
	})
}
