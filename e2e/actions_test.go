package e2e

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/template"

	"google.golang.org/grpc"

	extensions "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/envoycheck"
)

// actionTests have, by the path of a route, its actions and what else its limit has, and requests as in the script of a scenario, each with
// what Envoy sends for it: "none" is no descriptor, "empty" one without entries.
var actionTests = map[string]struct{ actions, script string }{
	"generic_key": {`[{generic_key: {descriptor_value: a}}]`, `-> generic_key=a`},
	"generic_key_named": {`[{generic_key: {descriptor_key: k, descriptor_value: "%REQ(x-a)%"}}]`,
		`x-a: 1 -> k=%REQ(x-a)%`},
	"source_cluster":      {`[{source_cluster: {}}]`, `-> source_cluster=edge`},
	"destination_cluster": {`[{destination_cluster: {}}]`, `-> destination_cluster=upstream`},
	"remote_address": {`[{remote_address: {}}]`, `
x-forwarded-for: 10.1.2.3 -> remote_address=10.1.2.3
x-forwarded-for: 2001:db8::1 -> remote_address=2001:db8::1`},
	"masked_remote_address": {`[{masked_remote_address: {v4_prefix_mask_len: 24, v6_prefix_mask_len: 64}}]`, `
x-forwarded-for: 10.1.2.3 -> masked_remote_address=10.1.2.0/24
x-forwarded-for: 2001:db8::1 -> masked_remote_address=2001:db8::/64`},
	"remote_address_match": {`[{remote_address_match: {descriptor_value: "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%", address_matcher: {ranges: [{address_prefix: 10.0.0.0, prefix_len: 8}]}}}]`, `
x-forwarded-for: 10.1.2.3 -> remote_address_match=10.1.2.3
x-forwarded-for: 11.1.2.3 -> none`},
	"remote_address_match_literal": {`[{remote_address_match: {descriptor_key: inside, descriptor_value: "yes", address_matcher: {ranges: [{address_prefix: 10.0.0.0, prefix_len: 8}]}}}]`, `
x-forwarded-for: 10.1.2.3 -> inside=yes
x-forwarded-for: 2001:db8::1 -> none`},
	"request_headers": {`[{request_headers: {header_name: x-a, descriptor_key: a}}]`, `
x-a: 1 -> a=1
x-a:  -> a=
-> none`},
	"request_headers_skipped": {`[{request_headers: {header_name: x-a, descriptor_key: a, skip_if_absent: true}}]`, `
x-a: 1 -> a=1
-> empty`},
	"request_headers_always": {`[{request_headers: {header_name: ":path", descriptor_key: p}}, {request_headers: {header_name: ":method", descriptor_key: m}}]`,
		`-> p=/request_headers_always  m=GET`},
	"two_skipped": {`[{request_headers: {header_name: x-a, descriptor_key: a, skip_if_absent: true}}, {generic_key: {descriptor_value: k}}, {request_headers: {header_name: x-b, descriptor_key: b, skip_if_absent: true}}]`, `
x-a: 1  x-b: 2 -> a=1  generic_key=k  b=2
x-a: 1 -> a=1  generic_key=k
x-b: 2 -> generic_key=k  b=2
-> generic_key=k`},
	"and": {`[{generic_key: {descriptor_value: k}}, {request_headers: {header_name: x-a, descriptor_key: a}}]`, `
x-a: 1 -> generic_key=k  a=1
-> none`},
	"query_parameters": {`[{query_parameters: {query_parameter_name: q, descriptor_key: query}}]`, `
?q=a%20b -> query=a b
?q= -> query=
-> none`},
	"query_parameters_skipped": {`[{generic_key: {descriptor_value: k}}, {query_parameters: {query_parameter_name: q, descriptor_key: query, skip_if_absent: true}}]`, `
?q=1 -> generic_key=k  query=1
-> generic_key=k`},
	"header_value_match": {`[{header_value_match: {descriptor_value: v, headers: [{name: x-a, string_match: {exact: "1"}}]}}]`, `
x-a: 1 -> header_match=v
x-a: 2 -> none
-> none`},
	"header_value_match_not": {`[{header_value_match: {descriptor_key: k, descriptor_value: v, expect_match: false, headers: [{name: x-a, present_match: true}]}}]`, `
x-a: 1 -> none
-> k=v`},
	"query_parameter_value_match": {`[{query_parameter_value_match: {descriptor_value: v, query_parameters: [{name: q, string_match: {exact: "1"}}]}}]`, `
?q=1 -> query_match=v
?q=2 -> none`},
	"metadata": {`[{metadata: {descriptor_key: plan, metadata_key: {key: app, path: [{key: plan}]}}}]`, `
x-plan: gold -> plan=gold
-> none`},
	"metadata_number": {`[{metadata: {descriptor_key: size, metadata_key: {key: app, path: [{key: size}]}}}]`, `x-size: 3 -> none`},
	"metadata_default": {`[{metadata: {descriptor_key: plan, default_value: free, metadata_key: {key: app, path: [{key: plan}]}}}]`, `
x-plan: gold -> plan=gold
-> plan=free`},
	"metadata_skipped": {`[{generic_key: {descriptor_value: k}}, {metadata: {descriptor_key: plan, skip_if_absent: true, metadata_key: {key: app, path: [{key: plan}]}}}]`, `
x-plan: gold -> generic_key=k  plan=gold
-> generic_key=k`},
	"metadata_route":            {`[{metadata: {descriptor_key: team, source: ROUTE_ENTRY, metadata_key: {key: app, path: [{key: team}]}}}]`, `-> team=web`},
	"metadata_cluster":          {`[{metadata: {descriptor_key: tier, source: CLUSTER_ENTRY, metadata_key: {key: app, path: [{key: tier}]}}}]`, `-> tier=gold`},
	"metadata_locality":         {`[{metadata: {descriptor_key: zone, source: CLUSTER_LOCALITY_ENTRY, metadata_key: {key: app, path: [{key: zone}]}}}], apply_on_stream_done: true`, `-> zone=a`},
	"metadata_locality_soon":    {`[{metadata: {descriptor_key: zone, source: CLUSTER_LOCALITY_ENTRY, metadata_key: {key: app, path: [{key: zone}]}}}]`, `-> none`}, // no host is chosen yet
	"metadata_locality_default": {`[{metadata: {descriptor_key: zone, source: CLUSTER_LOCALITY_ENTRY, default_value: any, metadata_key: {key: app, path: [{key: none}]}}}], apply_on_stream_done: true`, `-> zone=any`},
	"expr": {`[{extension: {name: custom, typed_config: {"@type": type.googleapis.com/envoy.extensions.rate_limit_descriptors.expr.v3.Descriptor, descriptor_key: method, text: request.method}}}]`,
		`-> method=GET`},
	"expr_skipped": {`[{generic_key: {descriptor_value: k}}, {extension: {name: custom, typed_config: {"@type": type.googleapis.com/envoy.extensions.rate_limit_descriptors.expr.v3.Descriptor, descriptor_key: a, skip_if_error: true, text: "request.headers['x-a']"}}}]`, `
x-a: 1 -> generic_key=k  a=1
-> generic_key=k`},
	"jwt_claim": {`[{extension: {name: claim, typed_config: {"@type": type.googleapis.com/envoy.extensions.rate_limit_descriptors.jwt_claim.v3.Descriptor, descriptor_key: sub, header_name: authorization, value_prefix: "Bearer ", claim_name: sub}}}]`, `
authorization: Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbm4ifQ.c2ln -> sub=ann
-> none`},
	"jwt_claim_default": {`[{extension: {name: claim, typed_config: {"@type": type.googleapis.com/envoy.extensions.rate_limit_descriptors.jwt_claim.v3.Descriptor, descriptor_key: sub, header_name: authorization, value_prefix: "Bearer ", default_value: nobody, skip_if_absent: true, claim_name: sub}}}]`, `
authorization: Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbm4ifQ.c2ln -> sub=ann
authorization: Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOjd9.c2ln -> sub=nobody
authorization: eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbm4ifQ.c2ln -> sub=nobody
-> sub=nobody`},
	"jwt_claim_skipped": {`[{generic_key: {descriptor_value: k}}, {extension: {name: claim, typed_config: {"@type": type.googleapis.com/envoy.extensions.rate_limit_descriptors.jwt_claim.v3.Descriptor, descriptor_key: sub, header_name: authorization, value_prefix: "Bearer ", skip_if_absent: true, claim_name: sub}}}]`, `
authorization: Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbm4ifQ.c2ln -> generic_key=k  sub=ann
authorization: Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOjd9.c2ln -> generic_key=k
-> generic_key=k`},
	"jwt_claim_cookie": {`[{extension: {name: claim, typed_config: {"@type": type.googleapis.com/envoy.extensions.rate_limit_descriptors.jwt_claim.v3.Descriptor, descriptor_key: sub, cookie: token, claim_name: sub}}}]`, `
cookie: token=eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbm4ifQ.c2ln -> sub=ann
cookie: other=eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbm4ifQ.c2ln -> none`},
	"input": {`[{extension: {name: the-input, typed_config: {"@type": type.googleapis.com/envoy.type.matcher.v3.HttpRequestHeaderMatchInput, header_name: x-a}}}]`, `
x-a: 1 -> the-input=1
-> none`},
}

// listTests have, by the name of a virtual host that has limits (generic_key=host), its routes, and the
// descriptors that are sent for /.
var listTests = map[string]struct{ routes, sent string }{
	"route-over-host": {`routes: [{match: {prefix: /}, route: {cluster: upstream, rate_limits: [{actions: [{generic_key: {descriptor_value: route}}]}]}}]`,
		"generic_key=route"},
	"host-alone": {`routes: [{match: {prefix: /}, route: {cluster: upstream}}]`, "generic_key=host"},
	"included": {`routes: [{match: {prefix: /}, route: {cluster: upstream, rate_limits: [{actions: [{generic_key: {descriptor_value: route}}]}]},
                          typed_per_filter_config: {ratelimit: {"@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute, vh_rate_limits: INCLUDE}}}]`,
		"generic_key=host  generic_key=route"},
	"ignored": {`routes: [{match: {prefix: /}, route: {cluster: upstream},
                          typed_per_filter_config: {ratelimit: {"@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute, vh_rate_limits: IGNORE}}}]`,
		""},
	"other-stage": {`routes: [{match: {prefix: /}, route: {cluster: upstream, rate_limits: [{stage: 1, actions: [{generic_key: {descriptor_value: route}}]}]}}]`, ""},
	"typed-over-both": {`routes: [{match: {prefix: /}, route: {cluster: upstream, rate_limits: [{actions: [{generic_key: {descriptor_value: route}}]}]},
                          typed_per_filter_config: {ratelimit: {"@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute, rate_limits: [{actions: [{generic_key: {descriptor_value: typed}}]}]}}}]`,
		"generic_key=typed"},
	"typed-without-limits": {`typed_per_filter_config: {ratelimit: {"@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute, rate_limits: [{actions: [{generic_key: {descriptor_value: typed}}]}]}}
                      routes: [{match: {prefix: /}, route: {cluster: upstream},
                          typed_per_filter_config: {ratelimit: {"@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute, vh_rate_limits: OVERRIDE}}}]`,
		"generic_key=host"},
	"typed-of-host": {`typed_per_filter_config: {ratelimit: {"@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute, rate_limits: [{actions: [{generic_key: {descriptor_value: typed}}]}]}}
                      routes: [{match: {prefix: /}, route: {cluster: upstream}}]`, "generic_key=typed"},
	"redirect":     {`routes: [{match: {prefix: /}, redirect: {path_redirect: /x}}]`, ""},
	"typed-off":    {`routes: [{match: {prefix: /}, route: {cluster: upstream}, typed_per_filter_config: {ratelimit: {"@type": type.googleapis.com/envoy.config.route.v3.FilterConfig, disabled: true}}}]`, ""},
	"include-flag": {`routes: [{match: {prefix: /}, route: {cluster: upstream, include_vh_rate_limits: true, rate_limits: [{actions: [{generic_key: {descriptor_value: route}}]}]}}]`, "generic_key=host  generic_key=route"},
}

// recorder is a rate limit service that says OK and keeps what it was asked.
type recorder struct {
	ratelimit.UnimplementedRateLimitServiceServer
	mu    sync.Mutex
	asked []*extensions.RateLimitDescriptor
}

// ShouldRateLimit implements the service.
func (r *recorder) ShouldRateLimit(_ context.Context, q *ratelimit.RateLimitRequest) (*ratelimit.RateLimitResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, q.GetDescriptors()...)
	return &ratelimit.RateLimitResponse{OverallCode: ratelimit.RateLimitResponse_OK}, nil
}

// take returns what was asked since it was called last.
func (r *recorder) take() [][]descriptors.Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list [][]descriptors.Entry
	for _, d := range r.asked {
		entries := []descriptors.Entry{}
		for _, e := range d.GetEntries() {
			entries = append(entries, descriptors.Entry{Key: e.GetKey(), Value: e.GetValue()})
		}
		list = append(list, entries)
	}
	r.asked = nil
	return list
}

// startActions starts a recorder and an Envoy with all tests' routes, and returns the Envoy's URL and what its
// configuration is, as it was written and as Envoy says it is.
func startActions(t *testing.T) (r *recorder, url, written, dumped string) {
	t.Helper()
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(upstream.Close)
	r, recorderPort := startRecorder(t)
	actions, lists := map[string]string{}, map[string]string{}
	for path, test := range actionTests {
		actions[path] = test.actions
	}
	for host, test := range listTests {
		lists[host] = test.routes
	}
	admin, ingress := proctest.FreePort(t), proctest.FreePort(t)
	text := &strings.Builder{}
	page, err := template.ParseFiles("testdata/actions.yaml.tmpl")
	if err == nil {
		err = page.Execute(text, map[string]any{
			"Admin": admin, "Port": ingress, "Recorder": recorderPort, "Upstream": port(upstream.Listener.Addr().String()),
			"Actions": actions, "Lists": lists, "Upstreams": []string{"upstream", "other"},
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	proctest.Envoy(t, text.String(), admin)
	return r, fmt.Sprintf("http://127.0.0.1:%d/", ingress), text.String(), dumpOf(t, admin)
}

// startRecorder starts one, and returns its port.
func startRecorder(t *testing.T) (*recorder, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r, server := &recorder{}, grpc.NewServer()
	ratelimit.RegisterRateLimitServiceServer(server, r)
	go func() { _ = server.Serve(l) }() // ends by Stop
	t.Cleanup(server.Stop)
	return r, port(l.Addr().String())
}

// dumpOf is an Envoy's configuration as it says itself.
func dumpOf(t *testing.T, admin int) string {
	t.Helper()
	answer, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/config_dump", admin))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	dump, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(dump)
}

// predicted is what an Envoy's configuration makes it send.
func predicted(t *testing.T, config string) []envoycheck.Send {
	t.Helper()
	c, err := envoycheck.Read([]descriptors.File{{Name: "envoy", Data: []byte(config)}})
	if err != nil {
		t.Fatal(err)
	}
	return c.Sends()
}

func TestWhatIsPredictedIsWhatEnvoySends(t *testing.T) {
	r, url, written, dumped := startActions(t)
	for name, config := range map[string]string{"as written": written, "as dumped": dumped} {
		sends := predicted(t, config)
		t.Run(name, func(t *testing.T) {
			for path, test := range actionTests {
				t.Run(path, func(t *testing.T) {
					i := slices.IndexFunc(sends, func(s envoycheck.Send) bool { return s.Domain == path })
					if i < 0 || len(sends[i].Descriptors) != 1 {
						t.Fatalf("predicted is %+v", sends)
					}
					ask := func(query string, headers []string) error { _, err := get(url+path+query, headers); return err }
					checkAction(t, r, ask, test.script, sends[i].Descriptors[0])
				})
			}
		})
	}
}

// checkAction sends the requests of a script, and compares what Envoy sends for them with what the script says, and
// all of it with what is predicted: nothing else is sent, and no shape is predicted in vain.
func checkAction(t *testing.T, r *recorder, ask func(query string, headers []string) error, script string, predicted envoycheck.Descriptor) {
	t.Helper()
	seen, missing := map[int]bool{}, false
	for line := range strings.SplitSeq(strings.TrimSpace(script), "\n") {
		left, want, _ := strings.Cut(line, "->")
		query := ""
		headers := slices.DeleteFunc(parts(left), func(p string) bool {
			if strings.HasPrefix(p, "?") {
				query = p
			}
			return p == query
		})
		if err := ask(query, headers); err != nil {
			t.Fatal(err)
		}
		asked := r.take()
		if text := strings.TrimSpace(want); text != "none" { // a limit may be asked for when the stream is done, which the client isn't told
			proctest.Eventually(t, "Envoy sends "+text, func() bool { asked = append(asked, r.take()...); return len(asked) > 0 })
		}
		if got := entriesText(asked); got != strings.Join(parts(want), "  ") {
			t.Errorf("%s: Envoy sends %q", line, got)
		}
		if len(asked) == 0 {
			missing = true
			continue
		}
		i := slices.IndexFunc(predicted.Shapes, func(shape []descriptors.Pattern) bool { return fits(asked[0], shape) })
		if i < 0 {
			t.Errorf("%s: Envoy sends %v, predicted is %+v", line, asked[0], predicted.Shapes)
		}
		seen[i] = true
	}
	if missing && !predicted.Droppable {
		t.Error("it is not always sent, which was not predicted")
	}
	if len(seen) != len(predicted.Shapes) && len(seen) > 0 {
		t.Errorf("of the %d shapes that are predicted, %d were seen: %+v", len(predicted.Shapes), len(seen), predicted.Shapes)
	}
}

func entriesText(asked [][]descriptors.Entry) string {
	if len(asked) == 0 {
		return "none"
	}
	if len(asked[0]) == 0 {
		return "empty"
	}
	var texts []string
	for _, e := range asked[0] {
		texts = append(texts, e.Key+"="+e.Value)
	}
	return strings.Join(texts, "  ")
}

func fits(entries []descriptors.Entry, shape []descriptors.Pattern) bool {
	return slices.EqualFunc(entries, shape, func(e descriptors.Entry, p descriptors.Pattern) bool {
		return e.Key == p.Key && (p.Values == nil || slices.Contains(p.Values, e.Value))
	})
}

func TestThePredictedListsAreThoseThatEnvoySends(t *testing.T) {
	r, url, written, dumped := startActions(t)
	for name, config := range map[string]string{"as written": written, "as dumped": dumped} {
		sends := predicted(t, config)
		lists := sends[len(sends)-len(listTests):] // in the order of the hosts
		for i, host := range slices.Sorted(maps.Keys(listTests)) {
			t.Run(name+"/"+host, func(t *testing.T) {
				var predicted []string
				for _, d := range lists[i].Descriptors {
					predicted = append(predicted, d.Shapes[0][0].Key+"="+d.Shapes[0][0].Values[0])
				}
				if _, err := get(url, []string{"host: " + host}); err != nil {
					t.Fatal(err)
				}
				var sent []string
				for _, entries := range r.take() {
					sent = append(sent, entriesText([][]descriptors.Entry{entries}))
				}
				for of, list := range map[string][]string{"predicted": predicted, "sent": sent} {
					slices.Sort(list)
					if got := strings.Join(list, "  "); got != listTests[host].sent {
						t.Errorf("%s is %q, not %q", of, got, listTests[host].sent)
					}
				}
			})
		}
	}
}

func TestADividedRouteIsPredictedForEachCluster(t *testing.T) {
	r, url, written, _ := startActions(t)
	var shapes [][]descriptors.Pattern
	for _, s := range predicted(t, written) {
		if s.Domain == "weighted" {
			shapes = append(shapes, s.Descriptors[0].Shapes...)
		}
	}
	seen := map[string]bool{}
	proctest.Eventually(t, "both clusters are asked for", func() bool {
		if _, err := get(url+"weighted", nil); err != nil {
			t.Fatal(err)
		}
		asked := r.take()
		if !slices.ContainsFunc(shapes, func(s []descriptors.Pattern) bool { return fits(asked[0], s) }) {
			t.Fatalf("Envoy sends %v, predicted is %s", asked, strconv.Quote(fmt.Sprint(shapes)))
		}
		seen[asked[0][0].Value] = true
		return len(seen) == len(shapes)
	})
}
