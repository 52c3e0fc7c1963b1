package e2e

import "testing"

// sentBy is the part of Envoy's configuration that a gateway makes of an object, or nil if that takes its control plane.
func sentBy(t *testing.T, object string) node {
	t.Helper()
	o := parsed(t, object)
	switch o["kind"] {
	case "EnvoyFilter":
		host := node{}
		for _, p := range at(o, "spec")["configPatches"].([]any) {
			p := p.(node)
			if p["applyTo"] != "VIRTUAL_HOST" || at(p, "patch")["operation"] != "MERGE" {
				t.Fatalf("unexpected patch: %v", p)
			}
			for field, value := range at(p, "patch", "value") {
				host[field] = value
			}
		}
		return node{"VirtualHost": host}
	case "HTTPProxy":
		var limits []any
		for _, d := range at(o, "spec", "virtualhost", "rateLimitPolicy", "global")["descriptors"].([]any) {
			var actions []any
			for _, e := range d.(node)["entries"].([]any) {
				actions = append(actions, contourAction(t, e.(node)))
			}
			limits = append(limits, node{"actions": actions})
		}
		return node{"VirtualHost": node{"rate_limits": limits}, "HttpConnectionManager": node{"use_remote_address": true}}
	}
	return nil
}

// contourAction is what Contour makes of an entry of a global descriptor.
func contourAction(t *testing.T, entry node) node {
	t.Helper()
	for kind := range entry {
		of := at(entry, kind)
		switch kind {
		case "genericKey":
			return node{"generic_key": node{"descriptor_key": of["key"], "descriptor_value": of["value"]}}
		case "remoteAddress":
			return node{"remote_address": node{}}
		case "requestHeader":
			return node{"request_headers": node{"header_name": of["headerName"], "descriptor_key": of["descriptorKey"]}}
		case "requestHeaderValueMatch":
			var headers []any
			for _, h := range of["headers"].([]any) {
				h := h.(node)
				headers = append(headers, node{"name": h["name"], "string_match": node{"contains": h["contains"]}})
			}
			return node{"header_value_match": node{"descriptor_value": of["value"], "headers": headers}}
		}
	}
	t.Fatalf("unexpected entry: %v", entry)
	return nil
}
