package redisstore

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
	"github.com/envoy-rls/envoy-rls/pkg/certs"
)

// TestServersAreReachedInEachWay has a server with a socket and TLS, two sentinels with a password of their own, of which one
// has TLS and knows the server by it, and a cluster with a password and TLS, whose only node doesn't know its own host.
func TestServersAreReachedInEachWay(t *testing.T) {
	a := proctest.NewAuthority(t)
	a.Sign("server")
	socket := filepath.Join(t.TempDir(), "redis.sock")
	options := func(dashes, port string) []string { // each a name and a value
		return []string{
			dashes + "tls-port", port, dashes + "tls-auth-clients", "no", dashes + "tls-ca-cert-file", a.File("ca.crt"),
			dashes + "tls-cert-file", a.File("server.crt"), dashes + "tls-key-file", a.File("server.key"),
		}
	}
	freePort := func() string { return fmt.Sprint(proctest.FreePort(t)) }
	byTLS, sentinelByTLS, nodeByTLS := freePort(), freePort(), freePort()
	server := proctest.StartRedis(t, append(options("--", byTLS), "--unixsocket", socket)...)
	sentinel := proctest.StartSentinel(t, server.Addr, "requirepass secret")
	lines := []string{"requirepass secret", "tls-replication yes"}
	for line := range slices.Chunk(options("", sentinelByTLS), 2) {
		lines = append(lines, line[0]+" "+line[1])
	}
	proctest.StartSentinel(t, "127.0.0.1:"+byTLS, lines...)
	node := proctest.StartRedisCluster(t, 1, false, append(options("--", nodeByTLS), "--tls-cluster", "yes")...).Masters[0]
	if err := node.Client().ConfigSet(t.Context(), "requirepass", "secret").Err(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	trust := TLS{Client: certs.Client{Authorities: certs.NewAuthorities(a.File("ca.crt"), nil)}}
	for i, c := range []struct {
		o  Options
		db int
	}{
		{Options{Address: "unix://" + socket + "?db=2"}, 2},
		{Options{Address: socket}, 0},
		{Options{Address: "redis+sentinel://" + sentinel.Addr + "/mymaster/3", SentinelAuth: "secret"}, 3},
		{Options{Address: "mymaster," + sentinel.Addr, Kind: Sentinel, SentinelAuth: "secret"}, 0},
		{Options{Address: "rediss+sentinel://127.0.0.1:" + sentinelByTLS + "/mymaster", TLS: trust, SentinelAuth: "secret"}, 0},
		{Options{Address: node.Addr + "," + node.Addr, Kind: Cluster, Auth: "secret"}, 0},
		{Options{Address: "redis+cluster://:secret@" + node.Addr}, 0},
		{Options{Address: "redis+cluster://:old@" + node.Addr, Auth: "secret"}, 0},
		{Options{Address: "redis+cluster://:old@" + node.Addr, Auth: "old", AuthFile: file}, 0},
		{Options{Address: "rediss+cluster://:secret@127.0.0.1:" + nodeByTLS, TLS: trust}, 0},
	} {
		c.o.Prefix, c.o.Timeout = fmt.Sprint(i, ":"), 5*time.Second
		s, err := Open(c.o)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close() }()
		if err := s.Check(t.Context()); err != nil {
			t.Errorf("%s: %v", c.o.Address, err)
			continue
		}
		if d := decide(t, s, "a", 1); d.Room != 2 {
			t.Errorf("%s: there is room for %d, want 2", c.o.Address, d.Room)
		}
		if s.target.kind == Cluster {
			continue
		}
		there := redis.NewClient(&redis.Options{Addr: server.Addr, DB: c.db})
		defer func() { _ = there.Close() }()
		if keys := there.Keys(t.Context(), c.o.Prefix+"*}a").Val(); len(keys) != 1 {
			t.Errorf("%s: in database %d there is %q", c.o.Address, c.db, keys)
		}
	}
}

func TestConnectionsAreReplacedAtTheEndOfTheirLife(t *testing.T) {
	proxy := proctest.StartProxy(t, proctest.StartRedis(t).Addr, 1)
	s, err := Open(Options{Address: proxy.URL(), Timeout: 5 * time.Second, ConnMaxLifetime: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	proctest.Eventually(t, "there was a third connection", func() bool {
		if err := s.Decide(context.Background(), batch("a", 0)); err != nil {
			t.Fatal(err)
		}
		return proxy.Accepted() >= 3
	})
	if all, _ := s.Connections(); all != 1 {
		t.Errorf("there are %d connections", all)
	}
}
