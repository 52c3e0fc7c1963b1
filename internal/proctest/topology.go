package proctest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// clusterSlots is the number of a Redis Cluster's hash slots.
const clusterSlots = 16384

// RedisCluster is a Redis Cluster: its masters, and as many replicas, or none.
type RedisCluster struct {
	Masters, Replicas []*Redis
}

// steadyTimeout is after how many milliseconds of silence a node is given up that nobody could replace: a busy machine must
// not bring a cluster down.
const steadyTimeout = "15000"

// StartRedisCluster starts a cluster whose masters share the slots evenly, each with a replica if wanted, which takes over
// after a second. A master that is gone takes nothing but its own slots with it. Further options are those of each node.
func StartRedisCluster(t testing.TB, masters int, withReplicas bool, options ...string) *RedisCluster {
	t.Helper()
	c := &RedisCluster{}
	for range masters {
		c.Masters = append(c.Masters, startNode(t, options...))
		if withReplicas {
			c.Replicas = append(c.Replicas, startNode(t, options...))
		}
	}
	ctx, first := context.Background(), c.Masters[0]
	for i, m := range c.Masters {
		from, to := i*clusterSlots/masters, (i+1)*clusterSlots/masters-1
		must(t, m.Client().ClusterAddSlotsRange(ctx, from, to).Err())
		must(t, m.Client().Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err())
	}
	for _, n := range append(c.Masters[1:len(c.Masters):len(c.Masters)], c.Replicas...) {
		first.meet(n)
	}
	c.await(t)
	if !withReplicas {
		for _, m := range c.Masters {
			must(t, m.Client().ConfigSet(ctx, "cluster-node-timeout", steadyTimeout).Err())
		}
		c.await(t) // one may have been given up before
	}
	for i, r := range c.Replicas {
		id := c.Masters[i].Client().ClusterMyID(ctx).Val()
		Eventually(t, "a replica knows its master", func() bool { return r.Client().ClusterReplicate(ctx, id).Err() == nil })
	}
	AwaitReplicas(t, c.Replicas...)
	return c
}

// AwaitReplicas returns once all replicas have what their master has.
func AwaitReplicas(t testing.TB, replicas ...*Redis) {
	t.Helper()
	Eventually(t, "the replicas follow", func() bool {
		for _, r := range replicas {
			if !strings.Contains(r.Client().Info(context.Background(), "replication").Val(), "master_link_status:up") {
				return false
			}
		}
		return true
	})
}

func startNode(t testing.TB, options ...string) *Redis {
	t.Helper()
	return StartRedis(t, append([]string{
		"--cluster-enabled", "yes", "--cluster-port", fmt.Sprint(FreePort(t)), "--cluster-node-timeout", "1000",
		"--cluster-replica-validity-factor", "0", "--cluster-require-full-coverage", "no",
	}, options...)...)
}

func (r *Redis) meet(other *Redis) {
	ctx := context.Background()
	port := other.Client().ConfigGet(ctx, "cluster-port").Val()["cluster-port"]
	_, own, _ := strings.Cut(other.Addr, ":")
	must(r.t, r.Client().Do(ctx, "CLUSTER", "MEET", "127.0.0.1", own, port).Err())
}

func (c *RedisCluster) await(t testing.TB) {
	t.Helper()
	Eventually(t, "the cluster is up", func() bool {
		for _, n := range append(c.Masters[:len(c.Masters):len(c.Masters)], c.Replicas...) {
			info := n.Client().ClusterInfo(context.Background()).Val()
			if !strings.Contains(info, "cluster_state:ok") ||
				!strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d\r", len(c.Masters)+len(c.Replicas))) {
				return false
			}
		}
		return true
	})
}

// URL is the cluster's address as --redis takes it.
func (c *RedisCluster) URL() string {
	addrs := make([]string, len(c.Masters))
	for i, m := range c.Masters {
		addrs[i] = m.Addr
	}
	return "redis+cluster://" + strings.Join(addrs, ",")
}

// BeginMove begins to move a slot from one master to another, and leaves its keys where they are.
func (c *RedisCluster) BeginMove(t testing.TB, slot int, from, to *Redis) {
	t.Helper()
	ctx := context.Background()
	source, target := from.Client(), to.Client()
	must(t, target.Do(ctx, "CLUSTER", "SETSLOT", slot, "IMPORTING", source.ClusterMyID(ctx).Val()).Err())
	must(t, source.Do(ctx, "CLUSTER", "SETSLOT", slot, "MIGRATING", target.ClusterMyID(ctx).Val()).Err())
}

// MoveSlot moves a slot from one master to another, key by key, as redis-cli does, also if that has begun.
func (c *RedisCluster) MoveSlot(t testing.TB, slot int, from, to *Redis) {
	t.Helper()
	c.BeginMove(t, slot, from, to)
	ctx := context.Background()
	source, target := from.Client(), to.Client()
	targetID := target.ClusterMyID(ctx).Val()
	_, port, _ := strings.Cut(to.Addr, ":")
	for {
		keys := source.ClusterGetKeysInSlot(ctx, slot, 10).Val()
		if len(keys) == 0 {
			break
		}
		for _, key := range keys {
			must(t, source.Migrate(ctx, "127.0.0.1", port, key, 0, 0).Err())
		}
	}
	for _, n := range []*redis.Client{target, source} {
		must(t, n.Do(ctx, "CLUSTER", "SETSLOT", slot, "NODE", targetID).Err())
	}
}

// RedisSentinels are three sentinels that watch a master and its replicas under the name mymaster.
type RedisSentinels struct {
	Master    *Redis
	Replicas  []*Redis
	Sentinels []*Redis
}

// StartRedisSentinels starts a master, replicas and three sentinels, which fail over after a second.
func StartRedisSentinels(t testing.TB, replicas int) *RedisSentinels {
	t.Helper()
	s := &RedisSentinels{Master: StartRedis(t)}
	ctx := context.Background()
	_, port, _ := strings.Cut(s.Master.Addr, ":")
	for range replicas {
		s.Replicas = append(s.Replicas, StartRedis(t, "--replicaof", "127.0.0.1 "+port))
	}
	AwaitReplicas(t, s.Replicas...)
	for range 3 {
		s.Sentinels = append(s.Sentinels, startSentinel(t, port, 2))
	}
	Eventually(t, "the sentinels know each other and the replicas", func() bool {
		for _, sentinel := range s.Sentinels {
			c := redis.NewSentinelClient(&redis.Options{Addr: sentinel.Addr})
			info := c.Master(ctx, "mymaster").Val()
			_ = c.Close() // it was asked
			if info["num-other-sentinels"] != "2" || info["num-slaves"] != fmt.Sprint(replicas) {
				return false
			}
		}
		return true
	})
	return s
}

// StartSentinel starts one sentinel that watches the master at an address under the name mymaster, with further lines of
// its configuration. It is there at once.
func StartSentinel(t testing.TB, master string, lines ...string) *Redis {
	t.Helper()
	_, port, _ := strings.Cut(master, ":")
	return startSentinel(t, port, 1, lines...)
}

func startSentinel(t testing.TB, masterPort string, quorum int, lines ...string) *Redis {
	t.Helper()
	port := FreePort(t)
	config := filepath.Join(t.TempDir(), "sentinel.conf")
	must(t, os.WriteFile(config, fmt.Appendf(nil, `port %d
bind 127.0.0.1
sentinel monitor mymaster 127.0.0.1 %s %d
sentinel down-after-milliseconds mymaster 1000
sentinel failover-timeout mymaster 5000
%s
`, port, masterPort, quorum, strings.Join(lines, "\n")), 0o600))
	s := &Redis{
		Process: Start(t, nil, find(t, "REDIS_SERVER_BIN", "redis-server"), config, "--sentinel"),
		Addr:    fmt.Sprintf("127.0.0.1:%d", port),
	}
	Eventually(t, "a sentinel listens on "+s.Addr, func() bool { return accepts(s.Addr) })
	return s
}

// URL is the master's address as --redis takes it, by its sentinels.
func (s *RedisSentinels) URL() string {
	addrs := make([]string, len(s.Sentinels))
	for i, n := range s.Sentinels {
		addrs[i] = n.Addr
	}
	return "redis+sentinel://" + strings.Join(addrs, ",") + "/mymaster"
}

// must ends the test with an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
