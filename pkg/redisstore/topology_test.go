package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
	"github.com/envoy-rls/envoy-rls/pkg/storetest"
)

func openURL(t *testing.T, url string) *Store {
	t.Helper()
	s, err := Open(Options{Address: url, Prefix: "p:", Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestAClusterPassesTheSuite(t *testing.T) {
	c := proctest.StartRedisCluster(t, 3, false)
	s := openURL(t, c.URL())
	check(t, s)
	storetest.RunWithoutClock(t, func(t *testing.T, _ *storetest.Clock) limiter.Store {
		t.Helper()
		for _, m := range c.Masters {
			m.Client().FlushAll(context.Background())
		}
		return s
	})
	for _, m := range c.Masters {
		if m.Client().DBSize(t.Context()).Val() == 0 {
			t.Errorf("%s has no counters", m.Addr)
		}
	}
}

// pour asks for counters, one hit each, from several goroutines until stop is closed, and returns how many hits of
// each were admitted and how many failed.
func pour(s *Store, counters int, stop <-chan struct{}) (admitted []atomic.Int64, failed *atomic.Int64, wait func()) {
	admitted, failed = make([]atomic.Int64, counters), &atomic.Int64{}
	var callers sync.WaitGroup
	for caller := range 8 {
		callers.Go(func() {
			for i := caller; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				b := batch(fmt.Sprint("counter-", i%counters), 1)
				b.Hits[0].Limit = &limiter.Limit{Requests: 1_000_000, Period: 24 * time.Hour}
				switch err := s.Decide(context.Background(), b); {
				case err != nil:
					failed.Add(1)
				case b.Allowed:
					admitted[i%counters].Add(1)
				}
			}
		})
	}
	return admitted, failed, callers.Wait
}

// move is how the slot of a prefix can move in a cluster of two masters.
func move(c *proctest.RedisCluster, prefix string) (slot int, from, to *proctest.Redis) {
	_, tag, _ := strings.Cut(prefix, "{")
	slot = slotOf(strings.TrimSuffix(tag, "}"))
	if slot < clusterSlots/2 {
		return slot, c.Masters[0], c.Masters[1]
	}
	return slot, c.Masters[1], c.Masters[0]
}

func TestReshardingUnderLoadLosesNoDecision(t *testing.T) {
	c := proctest.StartRedisCluster(t, 2, false)
	s := openURL(t, c.URL())
	check(t, s)
	stop := make(chan struct{})
	admitted, failed, wait := pour(s, 200, stop)
	for _, prefix := range s.prefixes {
		slot, from, to := move(c, prefix)
		c.MoveSlot(t, slot, from, to)
	}
	close(stop)
	wait()
	if n := failed.Load(); n > 0 {
		t.Errorf("%d decisions failed", n)
	}
	for i := range admitted {
		b := batch(fmt.Sprint("counter-", i), 0)
		b.Hits[0].Limit = &limiter.Limit{Requests: 1_000_000, Period: 24 * time.Hour}
		if err := s.Decide(context.Background(), b); err != nil {
			t.Fatal(err)
		}
		if used := 1_000_000 - b.Decisions[0].Room; used != admitted[i].Load() {
			t.Fatalf("counter %d is at %d after %d hits", i, used, admitted[i].Load())
		}
	}
}

// under are hits of counters under one tag.
func under(s *Store, tag int, keys ...string) *limiter.Batch {
	h := limiter.Hit{Cost: 1, Charge: limiter.Together, Limit: threePerDay}
	for i := 0; h.Partition == "" || s.tagOf(&h) != tag; i++ {
		h.Partition = fmt.Sprint("partition-", i)
	}
	b := &limiter.Batch{Decisions: make([]limiter.Decision, len(keys))}
	for _, h.Key = range keys {
		b.Hits = append(b.Hits, h)
	}
	return b
}

// awaitRefusal waits until a batch is refused for a reason, by which it is certain that it was not counted.
func awaitRefusal(t *testing.T, s *Store, reason string, b *limiter.Batch) {
	t.Helper()
	proctest.Eventually(t, reason, func() bool {
		var f *Failure
		err := s.Decide(t.Context(), b)
		return errors.As(err, &f) && f.Reason == reason && errors.Is(err, limiter.ErrNotAsked)
	})
}

func TestARequestWhoseCountersAreOnTwoNodesWaitsUntilTheyAreOnOne(t *testing.T) {
	c := proctest.StartRedisCluster(t, 2, false)
	s := openURL(t, c.URL())
	hasty, err := Open(Options{Address: c.URL(), Prefix: "p:", Timeout: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = hasty.Close() }()
	slot, from, to := move(c, s.prefixes[0])
	decideNow := func(b *limiter.Batch) {
		t.Helper()
		if err := s.Decide(context.Background(), b); err != nil {
			t.Error(err)
		}
	}
	decideNow(under(s, 0, "stays"))
	c.BeginMove(t, slot, from, to)
	decideNow(under(s, 0, "new"))
	if keys := to.Client().Keys(t.Context(), "*}new").Val(); len(keys) != 1 {
		t.Errorf("a new counter is not where its slot goes: %q", keys)
	}
	both := under(s, 0, "stays", "new")
	awaitRefusal(t, hasty, "tryagain", both)
	refused := func() string {
		return from.Client().Info(t.Context(), "errorstats").Val()
	}
	before := refused()
	var caller sync.WaitGroup
	caller.Go(func() { decideNow(both) })
	proctest.Eventually(t, "the request waits", func() bool { return refused() != before })
	c.MoveSlot(t, slot, from, to)
	caller.Wait()
	if a, b := both.Decisions[0].Room, both.Decisions[1].Room; a != 1 || b != 1 {
		t.Errorf("there is room for %d and %d, want 1", a, b)
	}
}

func TestASlotThatNobodyServesHurtsItsOwnCountersOnlyUnlessAllMustBeServed(t *testing.T) {
	c := proctest.StartRedisCluster(t, 2, false)
	s := openURL(t, c.URL())
	slot, owner, _ := move(c, s.prefixes[0])
	its, others := under(s, 0, "a"), under(s, clusterTags-1, "a")
	onAll := func(words ...any) {
		t.Helper()
		for _, m := range c.Masters {
			if err := m.Client().Do(t.Context(), words...).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	decides := func(b *limiter.Batch) {
		t.Helper()
		proctest.Eventually(t, "it is decided", func() bool { return s.Decide(t.Context(), b) == nil })
	}
	onAll("CONFIG", "SET", "cluster-require-full-coverage", "yes")
	onAll("CLUSTER", "DELSLOTS", slot)
	awaitRefusal(t, s, "clusterdown", its)
	awaitRefusal(t, s, "clusterdown", others)
	onAll("CONFIG", "SET", "cluster-require-full-coverage", "no")
	decides(others)
	awaitRefusal(t, s, "clusterdown", its)
	if err := owner.Client().ClusterAddSlots(t.Context(), slot).Err(); err != nil {
		t.Fatal(err)
	}
	decides(its)
	if room := its.Decisions[0].Room; room != 2 {
		t.Errorf("there is room for %d, want 2", room)
	}
}

func TestADeadNodeHurtsItsOwnCountersOnlyUntilItsReplicaTakesOver(t *testing.T) {
	c := proctest.StartRedisCluster(t, 3, true)
	s := openURL(t, c.URL())
	check(t, s)
	works := func(i int) bool { return s.Decide(context.Background(), batch(fmt.Sprint("counter-", i), 1)) == nil }
	const counters = 60
	onDead := map[int]bool{}
	for i := range counters {
		_, tag, _ := strings.Cut(s.prefixOf(&batch(fmt.Sprint("counter-", i), 1).Hits[0]), "{")
		onDead[i] = slotOf(strings.TrimSuffix(tag, "}")) < clusterSlots/3
	}
	stayReplicas := func(yes string) {
		t.Helper()
		for _, r := range c.Replicas {
			if err := r.Client().ConfigSet(t.Context(), "cluster-replica-no-failover", yes).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	stayReplicas("yes") // until all counters have been asked for
	c.Masters[0].Kill()
	ask := func(dead bool) {
		for i := range counters {
			if onDead[i] == dead && works(i) == dead {
				t.Errorf("counter %d on the dead node: %t, decided: %t", i, dead, dead)
			}
		}
	}
	ask(false) // with as much time as they need
	s.timeout = 100 * time.Millisecond
	ask(true)
	stayReplicas("no")
	proctest.Eventually(t, "all counters are decided again", func() bool {
		for i := range counters {
			if !works(i) {
				return false
			}
		}
		return true
	})
}

func TestSentinelsTellOfANewMaster(t *testing.T) {
	r := proctest.StartRedisSentinels(t, 2)
	s := openURL(t, r.URL())
	check(t, s)
	if d := decide(t, s, "a", 1); d.Room != 2 {
		t.Errorf("there is room for %d, want 2", d.Room)
	}
	proctest.Eventually(t, "the replicas have the counter", func() bool {
		for _, replica := range r.Replicas {
			if len(replica.Client().Keys(t.Context(), "*}a").Val()) == 0 {
				return false
			}
		}
		return true
	})
	r.Master.Kill()
	b := batch("a", 1)
	proctest.Eventually(t, "the new master decides", func() bool { return s.Decide(context.Background(), b) == nil })
	if b.Decisions[0].Room != 1 {
		t.Errorf("the new master has room for %d, want 1", b.Decisions[0].Room)
	}
}

func TestServersSetUpOtherwiseAreNamed(t *testing.T) {
	single, cluster := proctest.StartRedis(t), proctest.StartRedisCluster(t, 1, false)
	sentinel, closed := proctest.StartSentinel(t, single.Addr), proctest.StartSentinel(t, single.Addr, "requirepass secret")
	for _, c := range []struct{ url, want string }{
		{single.URL(), ""},
		{"redis+cluster://" + single.Addr, "it is no cluster; write redis://host:port"},
		{"redis://" + cluster.Masters[0].Addr, "it is a node of a cluster; write redis+cluster://"},
		{"redis://" + sentinel.Addr, "it is a sentinel; write redis+sentinel://"},
		{"redis+cluster://" + sentinel.Addr, "it is no cluster; write redis://host:port, or redis+sentinel://"},
		{"redis+sentinel://" + sentinel.Addr + "/mymaster", ""},
		{"redis+sentinel://" + sentinel.Addr + "/master", `the sentinels know no master "master"; they know mymaster`},
		{"redis+sentinel://" + single.Addr + "/mymaster", "it is no sentinel; write redis://host:port, or redis+cluster://"},
		{"redis+sentinel://" + cluster.Masters[0].Addr + "/mymaster", "it is no sentinel; write redis://host:port, or redis+cluster://"},
		{"redis+sentinel://" + closed.Addr + "/mymaster", "the sentinels refuse to tell the master: NOAUTH"},
	} {
		s := openURL(t, c.url)
		if c.want == "" {
			check(t, s)
			continue
		}
		err := s.Check(t.Context())
		var refuses *Unsupported
		if !errors.As(err, &refuses) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: the error is %v, want %s", c.url, err, c.want)
		}
	}
}

func TestProcessesMustAgreeOnTheNumberOfTags(t *testing.T) {
	c := proctest.StartRedisCluster(t, 1, false)
	check(t, openURL(t, c.URL()))
	s, err := Open(Options{Address: c.URL(), Prefix: "p:", HashTags: 32})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	var refuses *Unsupported
	if err := s.Check(t.Context()); !errors.As(err, &refuses) || !strings.Contains(err.Error(), "spread over 16 tags") {
		t.Errorf("the error is %v", err)
	}
}
