package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/metadata"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// What the pages have in mind.

const shopRules = `domain: shop
descriptors:
  - {key: user, rate_limit: {unit: day, requests_per_unit: 3}}
  - {key: tenant, rate_limit: {unit: day, requests_per_unit: 100000}}
  - {key: address, rate_limit: {unit: day, requests_per_unit: 3}}
`

// serve starts a service in the operator's directory, with these rules unless there are others.
func (o *operator) serve(args ...string) *proctest.Service {
	o.t.Helper()
	if _, err := os.Stat(filepath.Join(o.dir, "config")); err != nil {
		o.write("config/shop.yaml", shopRules)
	}
	address := func() (string, int) { port := proctest.FreePort(o.t); return fmt.Sprint("127.0.0.1:", port), port }
	s := &proctest.Service{}
	var grpc, web, admin int
	s.GRPC, grpc = address()
	s.HTTP, web = address()
	s.Admin, admin = address()
	env := slices.Concat(o.env, []string{
		"DEBUG_HOST=127.0.0.1", fmt.Sprint("GRPC_PORT=", grpc), fmt.Sprint("PORT=", web), fmt.Sprint("DEBUG_PORT=", admin),
	})
	s.Process = proctest.StartIn(o.t, o.dir, env, append([]string{proctest.Binary(o.t), "serve"}, args...)...)
	proctest.Eventually(o.t, "the service listens", func() bool { return strings.Contains(s.Output(), "msg=listening") })
	o.logs = append(o.logs, s.Process)
	return s
}

// asks makes a service the one that the page asks.
func (o *operator) asks(s *proctest.Service) {
	o.here = append(o.here, "localhost:8080", s.HTTP, "localhost:6070", s.Admin, "127.0.0.1:6070", s.Admin)
	o.env = append(o.env, "RLS_ADDR="+s.GRPC, "ENVOY_RLS_ADMIN=http://"+s.Admin)
}

// calls asks a service, of the operator's or one that the page starts, until the answer is this one.
func (o *operator) calls(address, domain, want string, descriptors ...string) {
	o.t.Helper()
	c := &gatewayCaller{o.t, nil, ratelimit.NewRateLimitServiceClient(dial(o.t, address)), domain}
	proctest.Eventually(o.t, fmt.Sprintf("%v is %s", descriptors, want), func() bool { return c.ask(descriptors...) == want })
}

// started is where a service listens that the page starts.
func (o *operator) started() string { return "127.0.0.1:" + o.variable("GRPC_PORT") }

func (o *operator) aService() {
	o.asks(o.serve())
	o.configMap()
}

// configMap has the rules in a ConfigMap.
func (o *operator) configMap() {
	o.t.Helper()
	o.write("configmap.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: envoy-rls-rules}\ndata:\n  shop.yaml: |\n"+
		regexp.MustCompile("(?m)^").ReplaceAllString(shopRules, "    "))
}

// rulesOfPage are the rules that a page shows.
func (o *operator) rulesOfPage(page string) {
	o.t.Helper()
	_, rules, _ := strings.Cut(documents(o.t)[page], "```yaml\n")
	rules, _, _ = strings.Cut(rules, "```")
	o.write("config/shop.yaml", rules)
}

func (o *operator) redis() *proctest.Redis {
	o.t.Helper()
	r := proctest.StartRedis(o.t)
	_, port, _ := strings.Cut(r.Addr, ":")
	o.here = append(o.here, "redis://redis:6379", r.URL(), "$REDIS_URL", r.URL(), "redis-cli ", "redis-cli -p "+port+" ")
	return r
}

func (o *operator) aRedis() {
	o.redis()
	o.rulesOfPage("docs/security.md")
}

func (o *operator) aCollector() {
	c := proctest.StartCollector(o.t)
	o.redis()
	o.write("config/shop.yaml", shopRules)
	o.env = append(o.env, "OTEL_BSP_SCHEDULE_DELAY=10")
	o.here = append(o.here, "http://collector:4318", c.HTTP)
	o.while["TRACING_ENABLED"] = func() {
		o.calls(o.started(), "shop", "OK", "user=ann")
		proctest.Eventually(o.t, "the call has a span", func() bool {
			for _, s := range c.Spans() {
				if s.Name == "ShouldRateLimit" {
					return true
				}
			}
			return false
		})
	}
}

// envoy starts the Envoy of deploy/envoy.yaml, which asks s.
func (o *operator) envoy(s *proctest.Service) {
	o.t.Helper()
	_, grpc, _ := strings.Cut(s.GRPC, ":")
	admin := proctest.FreePort(o.t)
	bootstrap := strings.NewReplacer("port_value: 8081", "port_value: "+grpc, "port_value: 9901", fmt.Sprint("port_value: ", admin),
		"port_value: 10000", fmt.Sprint("port_value: ", proctest.FreePort(o.t))).Replace(repositoryFile(o.t, "deploy/envoy.yaml"))
	proctest.Envoy(o.t, bootstrap, admin)
	o.here = append(o.here, "localhost:9901", fmt.Sprint("localhost:", admin))
}

func (o *operator) anEnvoy() {
	s := o.serve()
	o.envoy(s)
	o.write("rules/demo.yaml", repositoryFile(o.t, "config/demo.yaml"))
	o.write("envoy.yaml", repositoryFile(o.t, "deploy/envoy.yaml"))
	o.write("envoyfilter.yaml", repositoryFile(o.t, "deploy/istio/envoyfilter.yaml"))
}

func (o *operator) twoReplicasInMemory() {
	o.exact = "envoy-rls explain --domain"
	o.ends["envoy-rls explain --domain shop path=/a tenant=acme"] = exitNoMatch
	o.ends["envoy-rls explain --fleet"] = exitError
	o.rulesOfPage("docs/explain.md")
	one, two := o.serve(), o.serve()
	o.here = append(o.here, "envoy-rls-headless:6070", one.Admin+","+two.Admin)
	o.asks(one)
	o.calls(one.GRPC, "shop", "OVER_LIMIT", "tenant=acme|path=/login")
	o.calls(two.GRPC, "shop", "OK", "tenant=acme|path=/login")
	for range 3 {
		o.calls(one.GRPC, "shop", "OK", "path=/a|tenant=acme")
	}
	o.calls(one.GRPC, "Shop", "OK", "user=ann")
}

func (o *operator) aServiceWithTokens() {
	o.write("tokens", "ann "+adminToken+"\n")
	s := o.serve("--redis="+o.redis().URL(), "--admin-token-file=tokens")
	o.asks(s)
	o.here = append(o.here, "ENVOY_RLS_TOKEN=…", "ENVOY_RLS_TOKEN="+adminToken,
		"ad2a1f8e", "$(envoy-rls override list | awk '/deny/ {print $1}')")
	o.calls(s.GRPC, "shop", "OK", "user=ann")
}

// threeReplicas are two over one Redis, and one that is away.
func (o *operator) threeReplicas() {
	redis, away := o.redis(), fmt.Sprint("127.0.0.1:", proctest.FreePort(o.t))
	o.write("redact-key", "a secret of all replicas")
	one := o.serve("--redis="+redis.URL(), "--redact-key-file=redact-key")
	two := o.serve("--redis="+redis.URL(), "--redact-key-file=redact-key")
	o.here = append(o.here, "envoy-rls-headless:6070", strings.Join([]string{one.Admin, two.Admin, away}, ","))
	o.while["envoy-rls top"] = func() {
		for _, s := range []*proctest.Service{one, two} {
			o.calls(s.GRPC, "shop", "OK", "tenant=acme")
			o.calls(s.GRPC, "shop", "OVER_LIMIT", "user=ann")
		}
	}
	o.while["envoy-rls serve"] = func() {
		o.calls(o.started(), "shop", "OVER_LIMIT", "user=ann")
		ctx := metadata.AppendToOutgoingContext(context.Background(), traceParent(1, false)...)
		req := shopRequest("user")
		req.Descriptors[0].Entries[0].Value = "ann"
		if _, err := ratelimit.NewRateLimitServiceClient(dial(o.t, o.started())).ShouldRateLimit(ctx, req); err != nil {
			o.t.Fatal(err)
		}
	}
}

// incidents are a service whose rules have changed, with an override, and one with a certificate whose control plane is away.
func (o *operator) incidents() {
	redis, authority := o.redis(), proctest.NewAuthority(o.t)
	authority.Sign("server")
	certificate, err := os.ReadFile(authority.File("server.crt"))
	if err != nil {
		o.t.Fatal(err)
	}
	o.write("server.crt", string(certificate))
	o.write("tokens", "ann "+adminToken+"\n")
	o.configMap()
	s := o.serve("--redis="+redis.URL(), "--admin-token-file=tokens")
	o.asks(s)
	o.envoy(s)
	o.here = append(o.here, "DOMAIN", "shop", "KEY=VALUE", "usr=ann", "RULE", "shop.user", "--token-file FILE", "--token-file tokens")
	o.calls(s.GRPC, "shop", "OK", "user=ann")
	o.follow(block{command: "envoy-rls override set --domain shop --rule shop.user --shadow --for 1h --token-file FILE"})
	o.write("config/shop.yaml", strings.Replace(shopRules, "requests_per_unit: 3}", "requests_per_unit: 5}", 1))
	tells(s, o.t, "rule changed", "shop.user")
	other := o.serve("--grpc-tls", "--grpc-tls-cert="+authority.File("server.crt"), "--grpc-tls-key="+authority.File("server.key"),
		"--rules=", "--config-type=xds", "--xds-server="+fmt.Sprint("127.0.0.1:", proctest.FreePort(o.t)))
	tells(other, o.t, "control plane")
}
