package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"text/template"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// gateway is a running Envoy. Behind it is an upstream that answers 200, and with the request's x-costs as
// x-cost.
type gateway struct {
	*proctest.Process
	bootstrap
}

// bootstrap is what testdata/envoy.yaml.tmpl is filled with. Each listener has all routes.
type bootstrap struct {
	Listeners []listener
	Services  []cluster
	Routes    []route

	AccessLog map[string]any // fields of each line; nil are path, status and metadata

	Tracing, Collector any // nil, or of the connection managers, and the cluster that it names

	Admin, Upstream int // set by startGateway
}

// listener asks a service. Unless it denies, requests pass when that can't answer.
type listener struct {
	Name    string
	Service string // the name of a cluster
	Timeout string // "" is long enough to wait for any answer
	Deny    bool   // 503 when there is no answer

	Port int // set by startGateway
}

// cluster is one or more replicas of envoy-rls.
type cluster struct {
	Name       string
	Ports      []string
	PingEvery  string // "" is 30s
	CheckEvery string // "": no health checks
	TLS        *mutualTLS
}

// mutualTLS are the files by which Envoy and envoy-rls trust each other; nil is plain text.
type mutualTLS struct {
	Cert, Key, CA string
}

// route is the path of a domain's name, with a list of Envoy's rate limits.
type route struct {
	Domain string
	Limits any
}

// limits reads a list of rate limits from YAML.
func limits(t *testing.T, text string) any {
	t.Helper()
	var list []any
	if err := yaml.Unmarshal([]byte(text), &list); err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	return list
}

func replicas(name string, services ...*proctest.Service) cluster {
	c := cluster{Name: name}
	for _, s := range services {
		c.Ports = append(c.Ports, port(s.GRPC))
	}
	return c
}

func port(address string) string {
	_, port, _ := net.SplitHostPort(address) // "" makes Envoy refuse the bootstrap
	return port
}

func startGateway(t *testing.T, b bootstrap) *gateway {
	t.Helper()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("x-cost", r.Header.Get("x-costs"))
	}))
	t.Cleanup(upstream.Close)
	b.Upstream, _ = strconv.Atoi(port(upstream.Listener.Addr().String())) // it is a number
	b.Admin = proctest.FreePort(t)
	if b.AccessLog == nil {
		b.AccessLog = map[string]any{
			"path": "%REQ(:PATH)%", "status": "%RESPONSE_CODE%", "metadata": "%DYNAMIC_METADATA(envoy.filters.http.ratelimit)%",
		}
	}
	for i := range b.Listeners {
		b.Listeners[i].Port = proctest.FreePort(t)
		if b.Listeners[i].Timeout == "" {
			b.Listeners[i].Timeout = "30s"
		}
	}
	inline := func(v any) (string, error) {
		text, err := json.Marshal(v)
		return string(text), err
	}
	text := &strings.Builder{}
	page, err := template.New("envoy.yaml.tmpl").Funcs(template.FuncMap{"json": inline}).ParseFiles("testdata/envoy.yaml.tmpl")
	if err == nil {
		err = page.Execute(text, b)
	}
	if err != nil {
		t.Fatal(err)
	}
	return &gateway{Process: proctest.Envoy(t, text.String(), b.Admin), bootstrap: b}
}

// request is one to a gateway; headers are lines of "name: value".
type request struct {
	listener, path string
	headers        []string
}

// answer is what a client sees.
type answer struct {
	status int
	header http.Header
}

func (g *gateway) get(t *testing.T, r request) answer {
	t.Helper()
	a, err := g.try(r)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// try is get for other goroutines than the test's own.
func (g *gateway) try(r request) (answer, error) {
	for _, l := range g.Listeners {
		if l.Name == r.listener {
			return get(fmt.Sprintf("http://127.0.0.1:%d/%s", l.Port, r.path), r.headers)
		}
	}
	return answer{}, fmt.Errorf("the bootstrap has no listener %s", r.listener)
}

func get(url string, headers []string) (answer, error) {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return answer{}, err
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ":")
		if name == "host" {
			req.Host = strings.TrimSpace(value)
			continue
		}
		req.Header.Set(name, strings.TrimSpace(value))
	}
	client := http.Client{Timeout: time.Minute, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return answer{resp.StatusCode, resp.Header}, err
}

// stat is the value of one of Envoy's statistics.
func (g *gateway) stat(t *testing.T, name string) int {
	t.Helper()
	for line := range lines(t, fmt.Sprintf("http://127.0.0.1:%d/stats?usedonly", g.Admin)) {
		if value, found := strings.CutPrefix(line, name+": "); found {
			n, err := strconv.Atoi(value)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	return 0
}
