package e2e

import (
	"crypto/x509"
	"net/url"
	"testing"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// TestOnlyAnEnvoyOfTheRightNameIsAnsweredOverMutualTLS has one Envoy with two certificates of one authority. The service's own
// is replaced meanwhile.
func TestOnlyAnEnvoyOfTheRightNameIsAnsweredOverMutualTLS(t *testing.T) {
	a := proctest.NewAuthority(t)
	a.Sign("server")
	for name, account := range map[string]string{"envoy": "/ns/edge/sa/envoy", "other": "/ns/edge/sa/other"} {
		uri := &url.URL{Scheme: "spiffe", Host: "cluster.local", Path: account}
		a.Sign(name, func(c *x509.Certificate) { c.IPAddresses, c.URIs = nil, []*url.URL{uri} })
	}
	rules := map[string]string{"secured": `- {key: all, rate_limit: {unit: day, requests_per_unit: 2}}`}
	service := exactService(t, inMemory, rulesIn(t, rules), "--grpc-tls", "--grpc-tls-cert="+a.File("server.crt"),
		"--grpc-tls-key="+a.File("server.key"), "--grpc-tls-client-ca="+a.File("ca.crt"),
		"--grpc-tls-client-san=spiffe://cluster.local/ns/edge/sa/envoy")
	right, wrong := replicas("right", service), replicas("wrong", service)
	right.TLS = &mutualTLS{a.File("envoy.crt"), a.File("envoy.key"), a.File("ca.crt")}
	wrong.TLS = &mutualTLS{a.File("other.crt"), a.File("other.key"), a.File("ca.crt")}
	a.Sign("server")
	g := startGateway(t, bootstrap{
		Listeners: []listener{{Name: "right", Service: "right", Deny: true}, {Name: "wrong", Service: "wrong", Deny: true}},
		Services:  []cluster{right, wrong},
		Routes:    []route{{Domain: "secured", Limits: limits(t, everybody)}},
	})
	for _, c := range []struct {
		listener string
		want     int
	}{{"right", 200}, {"wrong", 503}, {"right", 200}, {"right", 429}, {"wrong", 503}} {
		if got := g.get(t, request{listener: c.listener, path: "secured"}).status; got != c.want {
			t.Errorf("over the %s certificate: %d, want %d", c.listener, got, c.want)
		}
	}
}
