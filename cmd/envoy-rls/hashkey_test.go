package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"hash"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

const hashedRules = `
domain: shop
keys: {user: {hash: true}}
descriptors:
  - key: user
    rate_limit: {unit: year, requests_per_unit: 100}
    descriptors: [{key: path, rate_limit: {unit: year, requests_per_unit: 9}}]
`

// startHashing starts replicas that hash by a secret.
func startHashing(t *testing.T, n int, secret string, args ...string) (f *crew, environment []string) {
	t.Helper()
	f = &crew{T: t, tokens: filepath.Join(t.TempDir(), "tokens")}
	rules, key := filepath.Join(t.TempDir(), "shop.yaml"), filepath.Join(t.TempDir(), "key")
	for name, text := range map[string]string{f.tokens: adminToken, rules: hashedRules, key: secret + "\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range n {
		s := proctest.StartService(t, append(args, "--rules="+rules, "--hash-key-file="+key, "--admin-token-file="+f.tokens, "--store-timeout=5s")...)
		f.replicas = append(f.replicas, s)
		f.clients = append(f.clients, ratelimit.NewRateLimitServiceClient(dial(t, s.GRPC)))
	}
	return f, []string{"RULES=" + rules, "HASH_KEY_FILE=" + key}
}

// TestNoValueIsInRedisAndReplicasWithOneSecretShareCounters reads all that is in Redis, names and contents.
func TestNoValueIsInRedisAndReplicasWithOneSecretShareCounters(t *testing.T) {
	server := proctest.StartRedis(t, "--rdbcompression", "no")
	f, environment := startHashing(t, 2, "a secret of replicas", "--redis="+server.URL())
	newLoad(t, f.replicas...).admitsExactly(100, 1000, shopRequest("user"))
	f.operate(1, "override", "set", "--domain=shop", "--rule=shop.user.path", "--match=user=the same", "--deny", "--for=1h")
	all := dump(t, server)
	for _, hidden := range []string{"the same", byHash(sha256.New(), "the same")} {
		if strings.Contains(all, hidden) {
			t.Errorf("%q is in Redis:\n%q", hidden, all)
		}
	}
	if n := strings.Count(all, byHash(hmac.New(sha256.New, []byte("a secret of replicas")), "the same")); n != 2 {
		t.Errorf("the value's hash is in Redis %d times, want a counter's name and an override:\n%q", n, all)
	}
	for _, args := range [][]string{{"get", "--domain=shop", "user=the same"}, {"list", "--domain=shop", "--match=user=the same"}} {
		if out := f.operate(1, append([]string{"counters"}, args...)...); !strings.Contains(out, "  100 per year  100   0  ") {
			t.Errorf("counters %q prints\n%s", args, out)
		}
	}
	explain := exec.Command(proctest.Binary(t), "explain", "--json", "--domain=shop", "--redis="+server.URL(), "user=the same")
	explain.Env = append(os.Environ(), environment...)
	var x rls.Explanation
	if out, _ := explain.Output(); json.Unmarshal(out, &x) != nil || x.Descriptors[0].Limits[0].Left != 0 { // it ends as OVER_LIMIT
		t.Errorf("explain prints %s", out)
	}

	other, _ := startHashing(t, 1, "a secret of another", "--redis="+server.URL())
	if !other.admits(0, "user") {
		t.Error("under another secret the counter is the same")
	}
	if a, b := rulesHashOf(f.replicas[0]), rulesHashOf(other.replicas[0]); a == b || a != rulesHashOf(f.replicas[1]) {
		t.Errorf("the hash of the rules is %s under one secret and %s under another", a, b)
	}
	f.operate(1, "counters", "reset", "--yes", "--domain=shop", "--match=user=the same")
	proctest.Eventually(t, "after a reset by its value replica 0 admits", func() bool { return f.admits(0, "user") })
}

// dump is all that is in a Redis.
func dump(t *testing.T, server *proctest.Redis) string {
	t.Helper()
	client, all := server.Client(), ""
	names, err := client.Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		contents, err := client.Dump(t.Context(), name).Result()
		if err != nil {
			t.Fatal(err)
		}
		all += name + "\n" + contents + "\n"
	}
	return all
}

// byHash is what stands for a value by a hash.
func byHash(h hash.Hash, value string) string {
	h.Write([]byte(value))
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// rulesHashOf is the hash of the rules that a replica tells.
func rulesHashOf(s *proctest.Service) string {
	_, metrics := s.Get("/metrics")
	return regexp.MustCompile(`envoy_rls_config_info\{hash="(\w+)"`).FindStringSubmatch(metrics)[1]
}
