package envoycheck

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"gopkg.in/yaml.v3"

	bootstrap "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	ratelimitconfig "github.com/envoyproxy/go-control-plane/envoy/config/ratelimit/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	httplimit "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	router3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	manager3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	network "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/ratelimit/v3"
	thriftlimit "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/thrift_proxy/filters/ratelimit/v3"
	thrift "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/thrift_proxy/v3"
	xff "github.com/envoyproxy/go-control-plane/envoy/extensions/http/original_ip_detection/xff/v3"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
)

func TestTheUsualConfigurationsHaveNoFinding(t *testing.T) {
	files := map[string]string{"../../deploy/envoy.yaml": "testdata/demo.rules.yaml"}
	for _, pattern := range []string{"testdata/shapes/*.yaml", "testdata/shapes/*.json"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if !strings.HasSuffix(name, ".rules.yaml") {
				files[name] = strings.TrimSuffix(name, filepath.Ext(name)) + ".rules.yaml"
			}
		}
	}
	if len(files) != 4 {
		t.Fatalf("there are %d files", len(files))
	}
	for name, rules := range files {
		for _, p := range check(t, read(t, name), read(t, rules)) {
			t.Errorf("%s: %s", name, p)
		}
	}
}

// sent is what a configuration makes an Envoy send, and what is wrong with it.
func sent(t *testing.T, config string) string {
	t.Helper()
	c, err := Read([]descriptors.File{{Name: "envoy.yaml", Data: []byte(config)}})
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(c.Sends(), c.Check(nil))
}

func TestOtherFormsSayTheSame(t *testing.T) {
	good := read(t, "testdata/good.yaml")
	var v any
	if err := yaml.Unmarshal([]byte(good), &v); err != nil {
		t.Fatal(err)
	}
	indented, err := json.MarshalIndent(v, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	for name, config := range map[string]string{
		"camelCase":      regexp.MustCompile(`[a-z0-9_]+:`).ReplaceAllStringFunc(good, camel),
		"JSON with tabs": string(indented),
		"references": strings.NewReplacer(
			"rate_limits:\n                        - actions: [{remote_address: {}}]", "rate_limits: [{<<: &address {stage: 0, actions: [{remote_address: {}}]}}]",
		).Replace(good),
	} {
		if config == good {
			t.Errorf("%s: nothing has changed", name)
		}
		if got, want := sent(t, config), sent(t, good); got != want {
			t.Errorf("%s: it sends\n%s\nnot\n%s", name, got, want)
		}
	}
}

func TestAConfigurationOfAFilterCanBeWrapped(t *testing.T) {
	const routes = `virtual_hosts: [{routes: [{route: {cluster: a}, typed_per_filter_config: {envoy.filters.http.ratelimit: %s}}]}]`
	const body = `rate_limits: [{actions: [{remote_address: {}}]}]`
	want := sent(t, fmt.Sprintf(routes, `{"@type": /`+globalRoute+`, `+body+`}`))
	if !strings.Contains(want, "(remote_address=…)") {
		t.Fatalf("it sends %s", want)
	}
	for _, wrapped := range []string{
		`{"@type": /xds.type.v3.TypedStruct, type_url: /` + globalRoute + `, value: {` + body + `}}`,
		`{"@type": /udpa.type.v1.TypedStruct, type_url: /` + globalRoute + `, value: {` + body + `}}`,
		`{"@type": /` + filterConfig + `, config: {"@type": /` + globalRoute + `, ` + body + `}}`,
	} {
		if got := sent(t, fmt.Sprintf(routes, wrapped)); got != want {
			t.Errorf("%s sends %s, not %s", wrapped, got, want)
		}
	}
}

func TestAListOfKubectlIsWhatIsInIt(t *testing.T) {
	istio := read(t, "testdata/shapes/istio.yaml")
	list := "apiVersion: v1\nkind: List\nitems:\n"
	for doc := range strings.SplitSeq(istio, "---\n") {
		list += "- " + strings.ReplaceAll(strings.TrimSpace(doc), "\n", "\n  ") + "\n"
	}
	rules := strings.ReplaceAll(read(t, "testdata/shapes/istio.rules.yaml"), "PATH", "path")
	one, other := check(t, istio, rules), check(t, list, rules)
	if len(one) == 0 || len(one) != len(other) {
		t.Errorf("found is %v and, in a list, %v", one, other)
	}
}

// TestTheNamesAreEnvoys holds the names that are looked for against the messages of Envoy's API.
func TestTheNamesAreEnvoys(t *testing.T) {
	action := (&route.RateLimit_Action{}).ProtoReflect().Descriptor().Oneofs().ByName("action_specifier").Fields()
	if action.Len() != len(actions) {
		t.Errorf("Envoy has %d actions, %d are known", action.Len(), len(actions))
	}
	for i := range action.Len() {
		if name := string(action.Get(i).Name()); actions[name] == nil {
			t.Errorf("the action %s is not known", name)
		}
	}
	for message, names := range map[protoreflect.ProtoMessage]string{
		&bootstrap.Bootstrap{}:                    "static_resources dynamic_resources layered_runtime node",
		&cluster.Cluster{}:                        "http2_protocol_options typed_extension_protocol_options transport_socket",
		&ratelimitconfig.RateLimitServiceConfig{}: "grpc_service transport_api_version",
		&route.RouteConfiguration{}:               "virtual_hosts typed_per_filter_config",
		&route.VirtualHost{}:                      "rate_limits routes typed_per_filter_config",
		&route.Route{}:                            "route redirect direct_response filter_action non_forwarding_action typed_per_filter_config",
		&route.RouteAction{}:                      "cluster weighted_clusters rate_limits include_vh_rate_limits",
		&route.WeightedCluster{}:                  "clusters",
		&route.FilterConfig{}:                     "config disabled",
		&route.RateLimit{}:                        "stage disable_key actions limit hits_addend apply_on_stream_done",
		&route.RateLimit_Override{}:               "rate_limit",
		&route.RateLimit_HitsAddend{}:             "number format",
		&route.RateLimit_Action_RequestHeaders{}:  "header_name descriptor_key skip_if_absent",
		&route.RateLimit_Action_QueryParameters{}: "query_parameter_name descriptor_key skip_if_absent",
		&route.RateLimit_Action_GenericKey{}:      "descriptor_value descriptor_key",
		&route.RateLimit_Action_MetaData{}:        "descriptor_key metadata_key default_value skip_if_absent",
		&httplimit.RateLimitPerRoute{}:            "vh_rate_limits rate_limits domain",
		&httplimit.RateLimit{}:                    "domain stage timeout failure_mode_deny failure_mode_deny_percent rate_limit_service filter_enabled rate_limits",
		&manager3.HttpConnectionManager{}:         "stat_prefix rds route_config scoped_routes http_filters use_remote_address xff_num_trusted_hops original_ip_detection_extensions",
		&manager3.HttpFilter{}:                    "name typed_config disabled",
		&thriftlimit.RateLimit{}:                  "domain stage timeout failure_mode_deny rate_limit_service",
		&thrift.ThriftProxy{}:                     "stat_prefix route_config thrift_filters",
		&thrift.ThriftFilter{}:                    "name typed_config",
		&thrift.RouteConfiguration{}:              "name routes",
		&thrift.RouteAction{}:                     "cluster weighted_clusters rate_limits",
		&xff.XffConfig{}:                          "xff_num_trusted_hops xff_trusted_cidrs",
		&network.RateLimit{}:                      "domain descriptors timeout failure_mode_deny rate_limit_service",
	} {
		fields := message.ProtoReflect().Descriptor().Fields()
		for name := range strings.FieldsSeq(names) {
			if fields.ByName(protoreflect.Name(name)) == nil {
				t.Errorf("%s has no %s", message.ProtoReflect().Descriptor().FullName(), name)
			}
		}
	}
	for name, message := range map[string]protoreflect.ProtoMessage{
		globalLimit: &httplimit.RateLimit{}, globalRoute: &httplimit.RateLimitPerRoute{}, networkLimit: &network.RateLimit{},
		router: &router3.Router{}, manager: &manager3.HttpConnectionManager{}, routeTable: &route.RouteConfiguration{},
		thriftProxy: &thrift.ThriftProxy{}, thriftLimit: &thriftlimit.RateLimit{}, xffDetection: &xff.XffConfig{},
		clusterType: &cluster.Cluster{}, filterConfig: &route.FilterConfig{},
	} {
		if got := message.ProtoReflect().Descriptor().FullName(); string(got) != name {
			t.Errorf("%s is called %s", name, got)
		}
	}
}
