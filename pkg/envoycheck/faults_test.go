package envoycheck

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
)

// fault is one mistake, as a change of testdata/good.yaml or rules.yaml.
type fault struct {
	finding finding
	old     string // what stands there
	new     string // what stands there instead, the first time
	at      string // the reported line has it
	want    string // the text has it
	refused string // what Envoy says if it refuses the mistake itself
	rules   bool   // the rules are changed
	base    string // what is changed instead of these, below testdata
}

var faults = []fault{
	{afterRouter, "                  - name: envoy.filters.http.ratelimit\n", `                  - name: envoy.filters.http.router
                    typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
                  - name: envoy.filters.http.ratelimit
`, "- name: envoy.filters.http.ratelimit", "put it before", "must be the last filter", false, ""},
	{apiVersion, "transport_api_version: V3", "transport_api_version: V2", "V2", "write transport_api_version: V3", "V2", false, ""},
	{chosenAddress, "                use_remote_address: true\n", "", "@type", "the address of shop.rate_limits[0] is the last of x-forwarded-for", "", false, ""},
	{chosenAddress, "use_remote_address: true", "use_remote_address: false", "use_remote_address", "write use_remote_address: true", "", false, ""},
	{chosenAddress, "header_name: x-user, descriptor_key: user", "header_name: X-Forwarded-For, descriptor_key: user", "X-Forwarded-For", "write remote_address: {}", "", false, ""},
	{chargedUnchecked, `x-user, descriptor_key: tokens}}]
                                  hits_addend: {format`, `x-user, descriptor_key: plan}}]
                                  hits_addend: {format`, "", "", "", false, ""},
	{checkedUncharged, `tokens}}]
                                  hits_addend: {format`, `user}}]
                                  hits_addend: {format`, "", "", "", false, ""},
	{deprecatedAction, "- actions: [{remote_address: {}}]", "- actions: [{dynamic_metadata: {descriptor_key: user, metadata_key: {key: a, path: [{key: b}]}}}]", "dynamic_metadata", "write metadata", "dynamic_metadata", false, ""},
	{droppable, "- actions: [{generic_key: {descriptor_value: api}}]\n", "\n", "request_headers", "without header x-tenant nothing is sent, and the request has no limit; add an entry beside this one: - actions: [{generic_key: {descriptor_value: api}}]", "", false, ""},
	{emptyDescriptor, "header_name: x-user, descriptor_key: user", "header_name: x-user, descriptor_key: user, skip_if_absent: true", "skip_if_absent", "without header x-user", "", false, ""},
	{failureMode, "failure_mode_deny: false", "", "", "", "", false, ""},
	{hitsIgnored, "- actions: [{remote_address: {}}]", "- {actions: [{remote_address: {}}], hits_addend: {number: 3}}", "hits_addend", "typed_per_filter_config.envoy.filters.http.ratelimit", "", false, ""},
	{hostOff, `                          typed_per_filter_config:
                            envoy.filters.http.ratelimit:
                              "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute
                              vh_rate_limits: INCLUDE`, "", "", "", "", false, ""},
	{limitsOff, `                    - name: llm
                      domains: [llm.example.com]
`, `                    - name: llm
                      domains: [llm.example.com]
                      typed_per_filter_config:
                        envoy.filters.http.ratelimit:
                          "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute
                          rate_limits: [{actions: [{remote_address: {}}]}]
                      routes:
                        - match: {prefix: /free}
                          route: {cluster: upstream}
                          typed_per_filter_config:
                            envoy.filters.http.ratelimit:
                              "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute
                              domain: shop
                    - name: other
                      domains: [other.example.com]
`, "rate_limits: [{actions", "a route's own configuration of the filter", "", false, ""},
	{limitsOff, "failure_mode_deny: false", "failure_mode_deny: false\n                      rate_limits: [{actions: [{remote_address: {}}]}]", "", "the filter envoy.filters.http.ratelimit", "", false, ""},
	{neverAsked, "  redirect: {path_redirect: /}", "  redirect: {path_redirect: /}\n                          typed_per_filter_config: {envoy.filters.http.ratelimit: {\"@type\": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute, rate_limits: [{actions: [{remote_address: {}}]}]}}", "", "", "", false, ""},
	{neverMatches, "descriptor_key: user}", "descriptor_key: User}", "User", "(User=…) matches no rule of domain shop: did you mean `user`?", "", false, ""},
	{neverMatches, "descriptor_value: free", "descriptor_value: gold", "gold", "(plan=gold) matches no rule of domain shop", "", false, ""},
	{neverProduced, "  - key: user\n", "  - key: customer\n", "key: customer", "", "", true, ""},
	{noCluster, "cluster_name: envoy-rls}}", "cluster_name: envoy_rls}}", "envoy_rls", "did you mean envoy-rls?", "", false, ""},
	{noFilter, `                  - name: envoy.filters.http.ratelimit
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
                      domain: shop
                      timeout: 0.05s
                      failure_mode_deny: false
                      enable_x_ratelimit_headers: DRAFT_VERSION_03
                      rate_limit_service:
                        transport_api_version: V3
                        grpc_service: {envoy_grpc: {cluster_name: envoy-rls}}
`, "", "remote_address", "", "", false, ""},
	{noFilter, `                  - name: envoy.filters.thrift.rate_limit
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.network.thrift_proxy.filters.ratelimit.v3.RateLimit
                      domain: calls
                      timeout: 0.05s
                      failure_mode_deny: true
                      rate_limit_service:
                        transport_api_version: V3
                        grpc_service: {envoy_grpc: {cluster_name: envoy-rls}}
`, "", "actions", "", "", false, "thrift"},
	{noHTTP2, "explicit_http_config: {http2_protocol_options: {}}", "explicit_http_config: {http_protocol_options: {}}", "", "http2_protocol_options", "", false, ""},
	{notAFormat, "descriptor_value: free", "descriptor_value: \"%REQ(x-plan)%\"", "%REQ", "request_headers", "", false, ""},
	{notText, "enable_x_ratelimit_headers: DRAFT_VERSION_03", "enable_x_ratelimit_headers: OFF", "OFF", `write "OFF", in quotes`, "enable_x_ratelimit_headers", false, ""},
	{notText, "descriptor_value: free", "descriptor_value: 10", "10", `write "10", in quotes`, "descriptor_value", false, ""},
	{notText, "descriptor_value: free", "descriptor_value: y", "y", `write "y", in quotes`, "descriptor_value", false, ""},
	{overrideUnit, "- actions: [{remote_address: {}}]", "- {actions: [{remote_address: {}}], limit: {rate_limit: {requests_per_unit: 3}}}", "limit", "unit: MINUTE", "", false, ""},
	{refusedField, "- actions: [{generic_key: {descriptor_key: plan", "- stage: 1\n                                  actions: [{generic_key: {descriptor_key: plan", "stage", "", "stage", false, ""},
	{sometimesUnmatched, "{descriptor_key: plan, descriptor_value: free}}]", "{descriptor_key: plan, descriptor_value: free}}, {request_headers: {header_name: x-user, descriptor_key: user, skip_if_absent: true}}]",
		"x-user", "(plan=free, user=…) matches no rule of domain shop", "", false, ""},
	{noTimeout, "timeout: 0.05s", "", "", "20 ms", "", false, ""},
	{noTimeout, "timeout: 0.05s", "timeout: 0s", "0s", "forever", "", false, ""},
	{unaskedDomain, "domain: shop\n", "domain: bank\n", "domain", "", "", true, ""},
	{unattached, "  envoy.filters.http.ratelimit:\n", "  envoy.filters.http.rate_limit:\n", "rate_limit:", "did you mean envoy.filters.http.ratelimit?", "", false, ""},
	{unknownDomain, "domain: shop", "domain: shops", "shops", "did you mean shop?", "", false, ""},
	{afterRouter, "operation: INSERT_BEFORE", "operation: INSERT_AFTER", "name: envoy.filters.http.ratelimit", "put it before", "", false, "shapes/istio"},
	{hostPort, "shop.example.com:443", "shop.example.com", "shop.example.com", "shop.example.com:80", "", false, "shapes/istio"},
	{noHTTP2, "http2ProtocolOptions", "httpProtocolOptions", "", "", "", false, "shapes/gateway"},
	{neverMatches, "descriptorKey: rule-1-match-1", "descriptorKey: rule-1-match-2", "actions", "did you mean `rule-1-match-1`?", "", false, "shapes/gateway"},
	{neverMatches, "{key: listener, value: redis}, ", "", "entries", "(client=…) matches no rule of domain tcp", "", false, "network"},
	{hitsIgnored, "- entries", "- hits_addend: 2\n                    entries", "hits_addend", "delete it", "", false, "network"},
	{noTimeout, "timeout: 0.05s", "", "", "20 ms", "", false, "network"},
	{neverMatches, "descriptor_key: method", "descriptor_key: methods", "", "(methods=…) matches no rule of domain calls", "", false, "thrift"},
	{neverProduced, "cluster: upstream\n                        rate", "cluster: envoy-rls\n                        rate", "key: remote_address", "", "", false, "thrift"},
	{noTimeout, "timeout: 0.05s", "", "", "20 ms", "", false, "thrift"},
	{notOfThrift, "{remote_address: {}}", "{masked_remote_address: {}}", "masked_remote_address", "there is destination_cluster, generic_key, header_value_match, remote_address, request_headers, source_cluster", "unsupported RateLimit Action", false, "thrift"},
	{notOfThrift, "{descriptor_value: internal", "{descriptor_key: caller, descriptor_value: internal", "descriptor_key: caller", "delete it", "", false, "thrift"},
	{notOfThrift, "descriptor_key: method}", "descriptor_key: method, skip_if_absent: true}", "skip_if_absent", "delete it", "", false, "thrift"},
	{notOfThrift, "- actions: [{destination", "- hits_addend: {number: 2}\n                            actions: [{destination", "hits_addend", "delete it", "", false, "thrift"},
	{noHTTP2, "explicit_http_config: {http2_protocol_options: {}}", "explicit_http_config:\n            http2_protocol_options:", "", "", "ExplicitHttpConfig", false, ""},
	{wrongPort, "port_value: 8081", "port_value: 8080", "8080", "8080 is the port of probes and metrics, by default; write 8081", "", false, ""},
	{wrongPort, "port_value: 8081", "port_value: 6070", "6070", "6070 is the port of admin", "", false, ""},
	{wrongPort, "outbound|8081|", "outbound|8080|", "cluster_name", "write 8081", "", false, "shapes/istio"},
	{wrongStage, "- actions: [{remote_address: {}}]", "- {actions: [{remote_address: {}}], stage: 1}", "stage", "", "", false, ""},
}

func read(t testing.TB, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// check is what is wrong with an Envoy's configuration beside rules.
func check(t *testing.T, config, rules string) []descriptors.Problem {
	t.Helper()
	c, err := Read([]descriptors.File{{Name: "envoy.yaml", Data: []byte(config)}})
	if err != nil {
		t.Fatal(err)
	}
	rs, problems := descriptors.Compile([]descriptors.File{{Name: "rules.yaml", Data: []byte(rules)}}, descriptors.Options{})
	for _, p := range problems {
		t.Error(p)
	}
	return c.Check(rs)
}

// validate says why Envoy refuses a bootstrap, or "".
func validate(t *testing.T, bootstrap string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "envoy.yaml")
	if err := os.WriteFile(file, []byte(bootstrap), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(proctest.EnvoyBinary(t), "--mode", "validate", "--config-path", file, "--log-level", "error").CombinedOutput()
	if err != nil {
		return err.Error() + ": " + string(out)
	}
	return ""
}

func TestAGoodConfigurationHasNoFinding(t *testing.T) {
	for config, rules := range map[string]string{"good.yaml": "rules.yaml", "network.yaml": "network.rules.yaml", "thrift.yaml": "thrift.rules.yaml"} {
		good := read(t, "testdata/"+config)
		for _, p := range check(t, good, read(t, "testdata/"+rules)) {
			t.Error(p)
		}
		if why := validate(t, good); why != "" {
			t.Errorf("Envoy refuses %s: %s", config, why)
		}
	}
}

func TestEachFaultIsFound(t *testing.T) {
	for _, f := range faults {
		t.Run(string(f.finding), func(t *testing.T) {
			config, rules := read(t, "testdata/good.yaml"), read(t, "testdata/rules.yaml")
			if f.base != "" {
				config, rules = read(t, "testdata/"+f.base+".yaml"), read(t, "testdata/"+f.base+".rules.yaml")
			}
			changed := &config
			if f.rules {
				changed = &rules
			}
			if !strings.Contains(*changed, f.old) {
				t.Fatalf("nothing to change has %q", f.old)
			}
			*changed = strings.Replace(*changed, f.old, f.new, 1)
			problems := check(t, config, rules)
			i := slices.IndexFunc(problems, func(p descriptors.Problem) bool { return strings.HasSuffix(p.Text, "["+string(f.finding)+"]") })
			if i < 0 {
				t.Fatalf("not found; there is %v", problems)
			}
			p := problems[i]
			file := config
			if p.File == "rules.yaml" {
				file = rules
			}
			if line := strings.Split(file, "\n")[p.Line-1]; !strings.Contains(line, f.at) {
				t.Errorf("%s\npoints to %s", p, line)
			}
			if !strings.Contains(p.Text, f.want) {
				t.Errorf("%s\nhas not %s", p, f.want)
			}
			if strings.HasPrefix(f.base, "shapes/") {
				return // they are no bootstraps
			}
			why := validate(t, config)
			if f.refused == "" && why != "" || !strings.Contains(why, f.refused) {
				t.Errorf("Envoy says %q", why)
			}
		})
	}
}

func TestEachFindingHasAFault(t *testing.T) {
	for f := range findings {
		if !slices.ContainsFunc(faults, func(o fault) bool { return o.finding == f }) {
			t.Errorf("no fault shows %s", f)
		}
	}
}
