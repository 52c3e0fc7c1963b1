package drills

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// spared is the domain of calls whose counters an outage must not touch. Its policy is error.
const spared = "spared"

// users is how many counters each domain has: enough for each tag to have some.
const users = 64

// shards is a service over a cluster of three masters, and its load: by policy, calls of counters that are on the first
// one; in the domain spared, calls of counters that are on the others.
type shards struct {
	cluster *proctest.RedisCluster
	sites   []*site
	load    *load
	users   map[string][]string // that are called, by domain
}

func startShards(t *testing.T, withReplicas bool) *shards {
	t.Helper()
	s := &shards{cluster: proctest.StartRedisCluster(t, 3, withReplicas), load: newLoad(t), users: map[string][]string{}}
	rules := policyRules()
	rules[spared] = rules["error"]
	dir := rulesIn(t, rules)
	for range 2 {
		s.sites = append(s.sites, startSite(t, "--redis="+s.cluster.URL(), dir))
	}
	sources := []source{controlSource(t)}
	for domain := range rules {
		masters := s.cluster.Masters[:1]
		if domain == spared {
			masters = s.cluster.Masters[1:]
		}
		s.users[domain] = s.on(t, domain, masters...)
		for _, site := range s.sites {
			sources = append(sources, source{site.client, func(n int) *ratelimit.RateLimitRequest {
				list := s.users[domain]
				return request(domain, "user", list[n%len(list)])
			}})
		}
	}
	s.load.open(250, sources...)
	s.load.awaitCalm("before")
	return s
}

// on are the users of a domain whose counters are on some masters. Each has been charged one hit.
func (s *shards) on(t *testing.T, domain string, masters ...*proctest.Redis) (list []string) {
	t.Helper()
	for n := range users {
		s.sites[0].settled(1, domain, "user", fmt.Sprintf("user-%02d", n))
	}
	prefix := fmt.Sprintf("}%d:%s4:user=7:", len(domain), domain)
	for _, m := range masters {
		keys, err := m.Client().Keys(t.Context(), "*"+prefix+"*").Result()
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range keys {
			_, name, _ := strings.Cut(key, prefix)
			name, _, _ = strings.Cut(name, "/")
			list = append(list, name)
		}
	}
	if len(list) < users/8 {
		t.Fatalf("of %d counters %d are where they should be", users, len(list))
	}
	return list
}

// checkSpared checks that all calls of the spared counters were decided by Redis, but for lack of CPU.
func (s *shards) checkSpared(t *testing.T, p phase) {
	t.Helper()
	got := p.of(spared)
	t.Logf("spared: %s", got)
	if n, few := got.calls-got.ok, p.few(got.calls); n > few {
		t.Errorf("%d of spared calls are not OK, more than %d: %s", n, few, got)
	}
	s.checkOnlyLate(t, spared)
}

// checkOnlyLate checks that answers of policies in a domain were for lack of time, if there were any.
func (s *shards) checkOnlyLate(t *testing.T, domain string) {
	t.Helper()
	for _, site := range s.sites {
		_, all := site.Get("/metrics")
		for line := range strings.SplitSeq(only(all, "envoy_rls_degraded_answers_total{", `domain="`+domain+`"`), "\n") {
			if line != "" && !strings.HasSuffix(line, " 0") && !strings.Contains(line, `"timeout"`) && !strings.Contains(line, `"canceled"`) {
				t.Errorf("a policy has answered: %s", line)
			}
		}
	}
}

// checkCounts checks that the cluster knows what was admitted in a domain, but for what nobody heard the end of, and for
// what replicas may lack.
func (s *shards) checkCounts(t *testing.T, domain string, lost int) {
	t.Helper()
	all := s.load.between(0, s.load.begun()).of(domain)
	admitted, unsure := all.ok+len(s.users[domain]), all.late
	for _, site := range s.sites {
		unsure += site.unsure(domain) + int(site.Metric("envoy_rls_given_back_hits_total", `result="error"`))
	}
	used := 0
	proctest.Eventually(t, "debts are given back", func() bool {
		used = 0
		for _, user := range s.users[domain] {
			used += plenty - s.sites[0].left(domain, "user", user)
		}
		return used >= admitted-unsure-lost
	})
	t.Logf("%s: admitted %d, counted %d; unsure are %d, and lost up to %d", domain, admitted, used, unsure, lost)
	if used > admitted+unsure {
		t.Errorf("%s: the cluster has counted %d, and %d were admitted; unsure are %d", domain, used, admitted, unsure)
	}
}

func TestAKilledMasterOfAClusterHurtsItsOwnCountersOnly(t *testing.T) {
	t.Parallel()
	s := startShards(t, true)
	known := inStep(t, s.cluster.Masters[0], s.cluster.Replicas[0])
	began := time.Now()
	var gone time.Time
	p := s.load.during(func() {
		s.cluster.Masters[0].Kill()
		gone = time.Now()
		next := awaitMaster(t, s.cluster.Replicas[0])
		client := next.Client()
		proctest.Eventually(t, "the cluster is well", func() bool {
			return proctest.ContainsAll(client.ClusterInfo(t.Context()).Val(), "cluster_state:ok", "cluster_slots_fail:0")
		})
		t.Logf("after %s its replica is the master", time.Since(began))
		if slow := s.load.awaitRecovery(recovery+4*slack, s.sites...); slow != "" { // there is no second try
			t.Error(slow)
		}
	})
	if late := p.checkOutage(t); late != "" {
		t.Error(late)
	}
	s.checkSpared(t, p)
	s.load.awaitCalm("after")
	s.load.end()
	s.checkCounts(t, "local", s.load.calledSince(known, gone, "local"))
	s.checkCounts(t, spared, 0)
}

func TestAShardWithoutAReplicaThatDiesIsAnsweredForByPolicy(t *testing.T) {
	t.Parallel()
	s := startShards(t, false)
	client := s.cluster.Masters[1].Client()
	p := s.load.during(func() {
		s.cluster.Masters[0].Kill()
		proctest.Eventually(t, "the cluster knows", func() bool {
			return !strings.Contains(client.ClusterInfo(t.Context()).Val(), "cluster_slots_fail:0")
		})
		s.load.awaitCalls(2 * calm)
	})
	later := s.load.during(func() { s.load.awaitCalls(5 * calm) })
	if late := p.checkOutage(t) + later.checkOutage(t); late != "" {
		t.Error(late)
	}
	s.checkSpared(t, slices.Concat(p, later))
	if all := later.of("local", "allow", "deny"); all.marked < all.calls-later.few(all.calls) {
		t.Errorf("without their shard, policies have not answered all of %s", all)
	}
	for _, site := range s.sites {
		if store := site.isReady(); !strings.Contains(store, "refused") {
			t.Errorf("/readyz says of the store: %s", store)
		}
		if n := site.Metric("envoy_rls_breaker_state"); n == 0 {
			t.Error("no breaker is open")
		}
	}
	s.load.end()
	s.checkCounts(t, spared, 0)
}

func TestAllCountersOfAClusterMoveUnderLoad(t *testing.T) {
	t.Parallel()
	s := startShards(t, false)
	slots := map[*proctest.Redis][]int{}
	for _, m := range s.cluster.Masters {
		c := m.Client()
		for _, key := range c.Keys(t.Context(), "*").Val() {
			slots[m] = append(slots[m], int(c.ClusterKeySlot(t.Context(), key).Val()))
		}
		slices.Sort(slots[m])
		slots[m] = slices.Compact(slots[m])
	}
	moved := 0
	p := s.load.during(func() {
		for i, from := range s.cluster.Masters {
			for _, slot := range slots[from] {
				s.cluster.MoveSlot(t, slot, from, s.cluster.Masters[(i+1)%3])
				moved++
			}
		}
		s.load.awaitCalls(calm)
	})
	all := p.of()
	t.Logf("%d slots were moved: %s", moved, all)
	if n, few := all.calls-all.ok, p.few(all.calls); n > few || moved < 16 {
		t.Errorf("%d slots were moved, and not more than %d calls may not be OK of %s", moved, few, all)
	}
	s.load.end()
	for domain := range s.users {
		s.checkOnlyLate(t, domain)
		s.checkCounts(t, domain, 0)
	}
}
