package drills

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// TestAValidButWrongRuleIsPushed: 100 a second have become 100 a minute, and an operator stops the refusals without a roll-out.
func TestAValidButWrongRuleIsPushed(t *testing.T) {
	const tokenText = "a-token-for-drills-only"
	dir := t.TempDir()
	rules, tokens := filepath.Join(dir, "shop.yaml"), filepath.Join(dir, "tokens")
	write := func(file, text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	push := func(unit string) {
		write(rules, fmt.Sprintf("domain: shop\ndescriptors:\n  - {key: user, rate_limit: {unit: %s, requests_per_unit: 100}}\n", unit))
	}
	push("second")
	write(tokens, tokenText)
	r := proctest.StartRedis(t)
	var sites []*site
	for range 2 {
		sites = append(sites, startSite(t, "--redis="+r.URL(), "--rules="+rules, "--admin-token-file="+tokens))
	}
	l := newLoad(t)
	const perSecond = 30
	l.open(perSecond, always(sites[0].client, request("shop", "user", "ann")), always(sites[1].client, request("shop", "user", "ann")))
	l.awaitCalls(60)
	if good := l.between(0, l.begun()).of(); good.over > 0 {
		t.Fatalf("the good rule refuses: %s", good)
	}
	push("minute")
	for _, s := range sites {
		proctest.Eventually(t, "the log says what has changed", func() bool {
			return s.logged(`change="~ shop.user: 100 per second -> 100 per minute"`) == 1
		})
	}
	proctest.Eventually(t, "the wrong rule refuses", func() bool { return refuses(sites[0]) && refuses(sites[1]) })

	from := l.begun()
	cmd := exec.Command(proctest.Binary(t), "override", "set", "--domain=shop", "--rule=shop.user", "--shadow", "--for=1h",
		"--reason=INC-4", "--admin=http://"+sites[0].Admin, "--token-file="+tokens)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	proctest.Eventually(t, "nobody refuses any more", func() bool { return !refuses(sites[0]) && !refuses(sites[1]) })
	// By the calls, of which a machine without time drops some.
	if n := l.begun() - from; n > 5*perSecond {
		t.Errorf("the refusals stopped after %d calls, %d a second", n, perSecond)
	}
	from = l.begun()
	l.awaitCalls(60)
	if after := l.between(from, l.begun()).of(); after.over > 0 || after.ok == 0 {
		t.Errorf("with the override %s", after)
	}
	for _, s := range sites {
		proctest.Eventually(t, "what would be refused is counted", func() bool { // a minute may have begun meanwhile
			return s.Metric("envoy_rls_decisions_total", `result="shadow_over_limit"`) > 0
		})
		if n := s.Metric("envoy_rls_overrides", `rule="shop.user"`, `kind="shadow"`); n != 1 {
			t.Errorf("%v overrides are counted", n)
		}
	}
}

// refuses tells whether a site refuses a user who has used up 100 a minute.
func refuses(s *site) bool {
	return s.ask(1, "shop", "user", "ann").GetOverallCode() == ratelimit.RateLimitResponse_OVER_LIMIT
}
