package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// envoyFilter is what istiod makes of an EnvoyFilter's patches; deploy/test decodes all of it.
type envoyFilter struct {
	Spec struct {
		ConfigPatches []struct {
			ApplyTo string `yaml:"applyTo"`
			Patch   struct {
				Operation string
				Value     map[string]any
			}
		} `yaml:"configPatches"`
	}
}

// node is a part of a bootstrap.
type node = map[string]any

// TestEnvoyAcceptsThePatchesForIstio applies them to a bootstrap such as istiod makes, and counts that each is used.
func TestEnvoyAcceptsThePatchesForIstio(t *testing.T) {
	host := node{"name": "shop.example:80", "domains": []any{"*"}, "routes": []any{
		node{"match": node{"prefix": "/"}, "route": node{"cluster": "upstream"}},
	}}
	router := node{"name": "envoy.filters.http.router", "typed_config": node{
		"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router",
	}}
	filters, clusters := []any{router}, []any{node{"name": "upstream", "type": "STATIC"}}
	for _, p := range istioPatches(t).Spec.ConfigPatches {
		switch p.ApplyTo + " " + p.Patch.Operation {
		case "CLUSTER ADD":
			clusters = append(clusters, p.Patch.Value)
		case "HTTP_FILTER INSERT_BEFORE":
			filters = append([]any{p.Patch.Value}, filters...)
		case "VIRTUAL_HOST MERGE":
			for field, value := range p.Patch.Value {
				host[field] = value
			}
		default:
			t.Errorf("unexpected patch: %s %s", p.ApplyTo, p.Patch.Operation)
		}
	}
	if len(filters) != 2 || len(clusters) != 2 || host["rate_limits"] == nil {
		t.Fatalf("filters: %v, clusters: %v, host: %v", filters, clusters, host)
	}
	manager := node{
		"@type":        "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
		"stat_prefix":  "outbound_0.0.0.0_80",
		"route_config": node{"virtual_hosts": []any{host}},
		"http_filters": filters,
	}
	envoyAccepts(t, node{"static_resources": node{
		"clusters": clusters,
		"listeners": []any{node{
			"name":    "0.0.0.0_80",
			"address": node{"socket_address": node{"address": "127.0.0.1", "port_value": proctest.FreePort(t)}},
			"filter_chains": []any{node{"filters": []any{
				node{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager},
			}}},
		}},
	}})
}

func istioPatches(t *testing.T) (f envoyFilter) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(proctest.Root(), "deploy", "istio", "envoyfilter.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &f); err != nil {
		t.Fatal(err)
	}
	return f
}

func envoyAccepts(t *testing.T, bootstrap node) {
	t.Helper()
	text, err := yaml.Marshal(bootstrap)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "envoy.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	validates(t, file)
}
