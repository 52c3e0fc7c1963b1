package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

const adminToken = "a-token-for-tests-only"

// overriddenRules refuse everything by one rule and nothing by the other.
const overriddenRules = `
domain: shop
descriptors:
  - {key: none, rate_limit: {unit: year, requests_per_unit: 0}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: one, rate_limit: {unit: year, requests_per_unit: 1}}
`

// liveWithin is within what time a change through one replica is in force on the others.
const liveWithin = 2 * time.Second

// crew is some replicas and an operator.
type crew struct {
	*testing.T
	replicas []*proctest.Service
	clients  []ratelimit.RateLimitServiceClient
	tokens   string
	took     []time.Duration // until changes were in force
}

func startCrew(t *testing.T, n int, args ...string) *crew {
	t.Helper()
	dir := t.TempDir()
	f := &crew{T: t, tokens: filepath.Join(dir, "tokens")}
	for name, text := range map[string]string{f.tokens: "ops " + adminToken, filepath.Join(dir, "shop.yaml"): overriddenRules} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	args = append(args, "--rules="+dir, "--admin-token-file="+f.tokens, "--store-timeout=5s")
	for range n {
		s := proctest.StartService(t, args...)
		f.replicas = append(f.replicas, s)
		f.clients = append(f.clients, ratelimit.NewRateLimitServiceClient(dial(t, s.GRPC)))
	}
	t.Cleanup(f.checkSoon)
	return f
}

// operate runs a command of the program against a replica.
func (f *crew) operate(replica int, args ...string) string {
	f.Helper()
	cmd := exec.Command(proctest.Binary(f.T), append(args, "--admin=http://"+f.replicas[replica].Admin, "--token-file="+f.tokens)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		f.Fatalf("%q: %v\n%s", args, err, out)
	}
	return string(out)
}

// admits asks a replica.
func (f *crew) admits(replica int, key string) bool {
	f.Helper()
	answer, err := f.clients[replica].ShouldRateLimit(f.Context(), shopRequest(key))
	if err != nil {
		f.Fatal(err)
	}
	return answer.GetOverallCode() == ratelimit.RateLimitResponse_OK
}

// soon waits until all replicas admit a key, or refuse it.
func (f *crew) soon(key string, admitted bool) {
	f.Helper()
	began := time.Now()
	for i := range f.replicas {
		proctest.Eventually(f.T, fmt.Sprintf("replica %d: %s admitted: %t", i, key, admitted), func() bool {
			return f.admits(i, key) == admitted
		})
	}
	f.took = append(f.took, time.Since(began))
}

// checkSoon checks that changes mostly took no longer than is promised: a busy machine may hold up a few.
func (f *crew) checkSoon() {
	f.Helper()
	slices.Sort(f.took)
	if n := len(f.took); n >= 4 && f.took[(n-1)/2] > liveWithin {
		f.Errorf("changes took %s", f.took)
	}
}

var idOfOverride = regexp.MustCompile(`^override ([0-9a-f]{8})`)

func TestAnOverrideOfEveryKindIsSoonInForceOnAllReplicas(t *testing.T) {
	for name, args := range map[string][]string{
		"a Redis":   {"--redis=" + proctest.StartRedis(t).URL()},
		"a cluster": {"--redis=" + proctest.StartRedisCluster(t, 3, false).URL()},
	} {
		t.Run(name, func(t *testing.T) {
			f := startCrew(t, 3, args...)
			for _, c := range []struct {
				key, kind string
				admits    bool
			}{
				{"none", "--shadow", true}, {"none", "--unlimited", true}, {"none", "--limit=100/second", true}, {"free", "--deny", false},
			} {
				f.soon(c.key, !c.admits)
				set := f.operate(0, "override", "set", "--domain=shop", "--rule=shop."+c.key, c.kind, "--for=1h", "--reason=a test")
				f.soon(c.key, c.admits)
				f.operate(1, "override", "unset", idOfOverride.FindStringSubmatch(set)[1])
				f.soon(c.key, !c.admits)
			}
			for i, s := range f.replicas {
				proctest.Eventually(t, "each replica has logged all that happened", func() bool {
					return strings.Count(s.Output(), "override set") == 4 && strings.Count(s.Output(), "override unset") == 4
				})
				if n := s.Metric("envoy_rls_overrides"); n != 0 {
					t.Errorf("replica %d counts %v overrides", i, n)
				}
			}
		})
	}
}

// TestAnOverrideEndsInTimeAlsoWithoutRedis: a replica that can't ask goes by its own clock.
func TestAnOverrideEndsInTimeAlsoWithoutRedis(t *testing.T) {
	redis := proctest.StartRedis(t)
	f := startCrew(t, 2, "--redis="+redis.URL())
	began := time.Now()
	f.operate(0, "override", "set", "--domain=shop", "--rule=shop.free", "--deny", "--for=10s")
	f.soon("free", false)
	redis.Signal(syscall.SIGSTOP)
	defer redis.Signal(syscall.SIGCONT)
	proctest.Eventually(t, "replicas know that they can't ask", func() bool {
		return strings.Contains(f.replicas[1].Output(), "overrides can't be read, those known stay until they end")
	})
	if ended := f.admits(1, "free"); ended && time.Since(began) < 9*time.Second {
		t.Error("the override has ended with Redis")
	}
	for i := range f.replicas {
		proctest.Eventually(t, "an override ends", func() bool { return f.admits(i, "free") })
	}
	if early := 10*time.Second - time.Since(began); early > time.Second {
		t.Errorf("it ended %s before what was asked for", early)
	}
}

func TestAnOverrideIsKnownToAReplicaThatStartsLater(t *testing.T) {
	redis := proctest.StartRedis(t)
	first := startCrew(t, 1, "--redis="+redis.URL())
	first.operate(0, "override", "set", "--domain=shop", "--rule=shop.free", "--deny", "--for=1h")
	startCrew(t, 1, "--redis="+redis.URL()).soon("free", false)
}

// TestAResetThroughOneReplicaLiftsARefusalThatAnotherRemembers, also as the replaced service remembers: until the window ends.
func TestAResetThroughOneReplicaLiftsARefusalThatAnotherRemembers(t *testing.T) {
	for name, args := range map[string][]string{
		"native": {},
		"compat": {"--compat=" + compatName, "--redis-socket-type=tcp", "--deny-cache=1MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			f := startCrew(t, 2, append(args, "--redis="+proctest.StartRedis(t).URL())...)
			for _, change := range [][]string{
				{"counters", "reset", "--yes", "--domain=shop", "one=the same"},
				{"counters", "reset", "--yes", "--domain=shop", "--rule=shop.one"},
				{"counters", "reset", "--yes", "--domain=shop", "--match=one=the same"},
				{"counters", "give", "--hits=1000", "--domain=shop", "one=the same"},
			} {
				if !f.admits(1, "one") {
					t.Errorf("before %q the counter is exhausted", change)
				}
				hits := f.replicas[1].Metric("envoy_rls_deny_cache_hits_total")
				for range 3 {
					if f.admits(1, "one") {
						t.Error("the limit is not held")
					}
				}
				if f.replicas[1].Metric("envoy_rls_deny_cache_hits_total") == hits {
					t.Error("nothing is remembered, which proves nothing")
				}
				f.operate(0, change...)
				began := time.Now()
				proctest.Eventually(t, "replica 1 admits again", func() bool { return f.admits(1, "one") })
				f.took = append(f.took, time.Since(began))
				f.operate(0, "counters", "reset", "--yes", "--domain=shop")
				proctest.Eventually(t, "and again", func() bool { return f.admits(1, "one") })
				f.operate(1, "counters", "reset", "--yes", "--domain=shop")
			}
		})
	}
}

func TestTheLogsLevelRevertsByItself(t *testing.T) {
	f := startCrew(t, 1, "--store=memory")
	s := f.replicas[0]
	put := func(query, token string) (code int, body string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://"+s.Admin+"/loglevel"+query, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		r, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = r.Body.Close() }() // it has been read
		text, _ := io.ReadAll(r.Body)         // what there is is compared
		return r.StatusCode, string(text)
	}
	level := func() string {
		r, err := http.Get("http://" + s.Admin + "/loglevel")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = r.Body.Close() }() // it has been read
		text, _ := io.ReadAll(r.Body)         // what there is is compared
		return string(text)
	}
	for query, want := range map[string]int{
		"?level=debug": http.StatusBadRequest, "?level=loud&for=1s": http.StatusBadRequest, "?level=debug&for=25h": http.StatusBadRequest,
	} {
		if code, body := put(query, adminToken); code != want {
			t.Errorf("%s is answered by %d: %s", query, code, body)
		}
	}
	if code, _ := put("?level=debug&for=1s", "another"+adminToken); code != http.StatusUnauthorized || level() != "INFO\n" {
		t.Errorf("without its token it is answered by %d, and the level is %s", code, level())
	}
	if code, body := put("?level=debug&for=1h", adminToken); code != http.StatusOK || body != "DEBUG for 1h0m0s, then INFO\n" || level() != "DEBUG\n" {
		t.Errorf("it is answered by %d: %s, and the level is %s", code, body, level())
	}
	if code, body := put("?level=error&for=500ms", adminToken); code != http.StatusOK || body != "ERROR for 500ms, then INFO\n" {
		t.Errorf("it is answered by %d: %s", code, body)
	}
	proctest.Eventually(t, "the level is the usual one again", func() bool { return level() == "INFO\n" })
	if !strings.Contains(s.Output(), `msg="log level changed" level=DEBUG for=1h0m0s then=INFO by=ops@127.0.0.1`) {
		t.Error("the log doesn't tell who has changed it")
	}
	proctest.Eventually(t, "the log tells of its end", func() bool {
		return strings.Contains(s.Output(), `msg="log level is the usual one again" level=INFO`)
	})
}
