package drills

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// policies are the values of on_store_failure, each of which has a domain of its name in policyRules.
var policies = []string{"local", "allow", "deny", "error"}

// plenty is a limit that no drill reaches, in a window that ends with none.
const (
	plenty = 1_000_000
	decade = "unit: year, unit_multiplier: 10"
)

// policyRules are a domain for each policy.
func policyRules() map[string]string {
	rules := map[string]string{}
	for _, policy := range policies {
		rules[policy] = fmt.Sprintf(
			"  - {key: user, on_store_failure: %s, rate_limit: {%s, requests_per_unit: %d}}\n", policy, decade, plenty)
	}
	return rules
}

// rulesIn writes rule files, from the descriptors of each domain.
func rulesIn(t testing.TB, descriptors map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for domain, list := range descriptors {
		text := "domain: " + domain + "\ndescriptors:\n" + list
		if err := os.WriteFile(filepath.Join(dir, domain+".yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return "--rules=" + dir
}

// site is a service and a client of it.
type site struct {
	*proctest.Service
	t      testing.TB
	client ratelimit.RateLimitServiceClient
}

// startSite starts a service, and returns once it has answered a call.
func startSite(t testing.TB, args ...string) *site {
	t.Helper()
	s := &site{Service: proctest.StartService(t, args...), t: t}
	s.client = dial(t, s.GRPC)
	s.look("warm", "up", "connection")
	return s
}

// controlSource is what measures this machine.
func controlSource(t testing.TB) source {
	t.Helper()
	s := startSite(t, "--store=memory", rulesIn(t, map[string]string{
		control: "  - {key: user, rate_limit: {" + decade + ", requests_per_unit: 1000000}}\n",
	}))
	return always(s.client, request(control, "user", "ann"))
}

// policyLoad calls all domains of policyRules, and the control, in turn.
func (s *site) policyLoad(perSecond int) *load { return policyLoad(s.t, perSecond, s) }

// policyLoad does so at several sites.
func policyLoad(t testing.TB, perSecond int, sites ...*site) *load {
	t.Helper()
	l := newLoad(t)
	sources := []source{controlSource(t)}
	for _, policy := range policies {
		for _, s := range sites {
			sources = append(sources, always(s.client, request(policy, "user", "ann")))
		}
	}
	l.open(perSecond, sources...)
	return l
}

// ask sends a request of so many hits, with as much time as it takes.
func (s *site) ask(hits uint64, domain, key, value string) *ratelimit.RateLimitResponse {
	s.t.Helper()
	answer, err := s.try(hits, domain, key, value)
	if err != nil {
		s.t.Fatalf("asking %s: %v", domain, err)
	}
	return answer
}

func (s *site) try(hits uint64, domain, key, value string) (*ratelimit.RateLimitResponse, error) {
	req := request(domain, key, value)
	req.Descriptors[0].HitsAddend = wrapperspb.UInt64(hits)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return s.client.ShouldRateLimit(ctx, req)
}

// settled asks until Redis has decided in time, and returns its answer.
func (s *site) settled(hits uint64, domain, key, value string) (answer *ratelimit.RateLimitResponse) {
	s.t.Helper()
	proctest.Eventually(s.t, "Redis decides in "+domain, func() (ok bool) {
		var err error
		answer, err = s.try(hits, domain, key, value)
		return err == nil && answer.GetDynamicMetadata() == nil
	})
	return answer
}

func (s *site) look(domain, key, value string) *ratelimit.RateLimitResponse {
	s.t.Helper()
	return s.ask(0, domain, key, value)
}

// left is what remains of a limit, by Redis.
func (s *site) left(domain, key, value string) int {
	s.t.Helper()
	return int(s.settled(0, domain, key, value).GetStatuses()[0].GetLimitRemaining())
}

// isReady checks that the service is ready and alive, and returns what it says of its store.
func (s *site) isReady() (store string) {
	s.t.Helper()
	if code, body := s.Get("/livez"); code != http.StatusOK {
		s.t.Errorf("/livez is %d: %s", code, body)
	}
	code, body := s.Get("/readyz")
	var state struct{ Store string }
	if err := json.Unmarshal([]byte(body), &state); err != nil || code != http.StatusOK {
		s.t.Errorf("/readyz is %d: %s (%v)", code, body, err)
	}
	return state.Store
}

// logged is how many lines of its log hold a text.
func (s *site) logged(text string) int { return strings.Count(s.Output(), text) }
