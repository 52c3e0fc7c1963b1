package envoycheck

import (
	"testing"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
)

// FuzzCheck: whatever a file has in it, every problem has a place in it, and nothing takes long or crashes.
func FuzzCheck(f *testing.F) {
	const of = "type.googleapis.com/"
	for _, seed := range []string{ // short ones, since what is found in long ones is minimized for a minute
		`a: &a [*a]`,
		`virtual_hosts: [{routes: [{route: {rate_limits: [{actions: [{}, 1, {generic_key: }, {remote_address: {}}]}]}}]}]`,
		`{"@type": "` + of + manager + `", http_filters: [{name: r, typed_config: {"@type": "` + of + globalLimit + `", domain: on, rate_limits: [{}]}}]}`,
		`{"@type": ` + of + networkLimit + `, domain: shop, descriptors: [{entries: [{key: user, value: "%a%"}], limit: {}}]}`,
		`{"@type": ` + of + thriftProxy + `, route_config: {routes: [{route: {rate_limits: [{limit: , actions: [{generic_key: {descriptor_key: a}}, {metadata}]}]}}]}, thrift_filters: [{typed_config: {"@type": ` + of + thriftLimit + `}}]}`,
		`{"@type": ` + of + manager + `, xff_num_trusted_hops: -1, route_config: {virtual_hosts: [{rate_limits: [{actions: [{remote_address: }]}]}]}, http_filters: [{typed_config: {"@type": ` + of + globalLimit + `}}]}`,
		"kind: EnvoyFilter\nspec: {configPatches: [{applyTo: HTTP_FILTER, patch: {operation: ADD, value: {typed_config: {\"@type\": /" + globalLimit + "}}}}]}",
		`virtual_hosts: [{rate_limits: [{actions: [{extension: {name: x}}]}], routes: [{typed_per_filter_config: {r: {"@type": /` + globalRoute + `, rate_limits: [{}]}}}]}]`,
	} {
		f.Add([]byte(seed))
	}
	rules, _ := descriptors.Compile([]descriptors.File{{Name: "rules.yaml", Data: []byte(read(f, "testdata/rules.yaml"))}}, descriptors.Options{})
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Read([]descriptors.File{{Name: "envoy.yaml", Data: data}})
		if err != nil {
			return
		}
		for _, p := range c.Check(rules) {
			if p.File == "" || p.Line < 1 || p.Column < 1 || p.Text == "" {
				t.Errorf("%+v", p)
			}
		}
		c.Sends()
	})
}
