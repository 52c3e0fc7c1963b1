package drills

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// admin is who changes a Redis.
type admin struct {
	t     testing.TB
	redis *proctest.Redis
	do    func(words ...any) error
}

func startAdmin(t testing.TB, options ...string) *admin {
	t.Helper()
	r := proctest.StartRedis(t, options...)
	client := r.Client()
	return &admin{t, r, func(words ...any) error { return client.Do(context.Background(), words...).Err() }}
}

// command returns a function that gives Redis commands, one after the other.
func (a *admin) command(list ...[]any) func() {
	return func() {
		a.t.Helper()
		for _, words := range list {
			if err := a.do(words...); err != nil {
				a.t.Errorf("%v: %v", words, err)
			}
		}
	}
}

// withUser makes a user that may do everything, and returns the URL by which the service is that user.
func (a *admin) withUser() (url string) {
	a.t.Helper()
	a.command([]any{"ACL", "SETUSER", "rls", "on", ">one", "~*", "&*", "+@all"})()
	return "redis://rls:one@" + a.redis.Addr
}

func TestRedisBecomesAReadOnlyReplica(t *testing.T) {
	t.Parallel()
	a := startAdmin(t)
	(&outage{
		redis: a.redis, reason: "readonly",
		begin: a.command([]any{"REPLICAOF", "127.0.0.1", proctest.FreePort(t)}),
		end:   a.command([]any{"REPLICAOF", "NO", "ONE"}),
	}).drill(t)
}

func TestRedisIsAReplicaThatHasLostItsMaster(t *testing.T) {
	t.Parallel()
	a := startAdmin(t, "--replica-serve-stale-data", "no")
	(&outage{
		redis: a.redis, reason: "masterdown",
		begin: a.command([]any{"REPLICAOF", "127.0.0.1", proctest.FreePort(t)}),
		end:   a.command([]any{"REPLICAOF", "NO", "ONE"}),
	}).drill(t)
}

func TestRedisIsOutOfMemoryAndEvictsNothing(t *testing.T) {
	t.Parallel()
	a := startAdmin(t)
	(&outage{
		redis: a.redis, reason: "oom",
		begin: a.command([]any{"CONFIG", "SET", "maxmemory", "1"}),
		end:   a.command([]any{"CONFIG", "SET", "maxmemory", "0"}),
	}).drill(t)
}

func TestThePermissionToRunScriptsIsWithdrawn(t *testing.T) {
	t.Parallel()
	a := startAdmin(t)
	(&outage{
		redis: a.redis, url: a.withUser(), reason: "noperm",
		begin: a.command([]any{"ACL", "SETUSER", "rls", "-eval", "-evalsha"}),
		end:   a.command([]any{"ACL", "SETUSER", "rls", "+@all"}),
	}).drill(t)
}

func TestThePasswordIsChangedAndChangedBack(t *testing.T) {
	t.Parallel()
	a := startAdmin(t)
	(&outage{
		redis: a.redis, url: a.withUser(), reason: "wrongpass",
		begin: a.command([]any{"ACL", "SETUSER", "rls", "resetpass", ">two"}, []any{"CLIENT", "KILL", "USER", "rls"}),
		end:   a.command([]any{"ACL", "SETUSER", "rls", "resetpass", ">one"}),
	}).drill(t)
}

func TestAPasswordIsNeededThatTheServiceDoesNotHave(t *testing.T) {
	t.Parallel()
	a := startAdmin(t)
	(&outage{
		redis: a.redis, reason: "noauth",
		begin: a.command([]any{"CONFIG", "SET", "requirepass", "two"}, []any{"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"}),
		end:   a.command([]any{"CONFIG", "SET", "requirepass", ""}),
	}).drill(t)
}

func TestAnEndlessScriptKeepsRedisBusy(t *testing.T) {
	t.Parallel()
	a := startAdmin(t, "--busy-reply-threshold", "50")
	var endless sync.WaitGroup
	(&outage{
		redis: a.redis, reason: "busy",
		begin: func() {
			endless.Go(func() { _ = a.do("EVAL", "while true do end", 0) }) // it is killed
			client := a.redis.Client()
			proctest.Eventually(t, "Redis is busy", func() bool { return client.Ping(context.Background()).Err() != nil })
		},
		end: func() {
			a.command([]any{"SCRIPT", "KILL"})()
			endless.Wait()
		},
	}).drill(t)
}

func TestRedisForgetsItsScriptsAllTheTime(t *testing.T) {
	t.Parallel()
	a := startAdmin(t)
	s := startSite(t, "--redis="+a.redis.URL(), rulesIn(t, policyRules()))
	l := s.policyLoad(250)
	ctx, cancel := context.WithCancel(t.Context())
	var flusher sync.WaitGroup
	flushes := 0
	flusher.Go(func() {
		for ; ctx.Err() == nil; flushes++ {
			a.command([]any{"SCRIPT", "FLUSH"})()
		}
	})
	l.awaitCalm("while it forgets its scripts")
	l.awaitCalm("while it forgets its scripts")
	cancel()
	flusher.Wait()
	if flushes < 20 {
		t.Errorf("the scripts were flushed %d times, which proves little", flushes)
	}
	if n := s.Metric("envoy_rls_store_errors_total", `reason="noscript"`); n > 0 {
		t.Errorf("%v calls failed", n)
	}
}

// usedMemory is what the server needs for now, in bytes.
func (a *admin) usedMemory() int {
	a.t.Helper()
	text, err := a.redis.Client().Info(context.Background(), "memory").Result()
	if err != nil {
		a.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(text, "used_memory:")
	line, _, _ := strings.Cut(rest, "\r")
	used, err := strconv.Atoi(line)
	if err != nil {
		a.t.Fatal(err)
	}
	return used
}

func TestARedisThatEvictsGoesOnCounting(t *testing.T) {
	t.Parallel()
	a := startAdmin(t, "--maxmemory-policy", "allkeys-lru", "--enable-debug-command", "local")
	s := startSite(t, "--redis="+a.redis.URL(), rulesIn(t, policyRules()))
	const room = 1 << 20 // for counters, and for a part of the ballast
	most := a.usedMemory() + room
	a.command([]any{"DEBUG", "POPULATE", 20_000, "ballast", 100}, []any{"CONFIG", "SET", "maxmemory", most})()
	l := s.policyLoad(250)
	l.awaitCalm("while it evicts")
	l.awaitCalm("while it evicts")
	l.end()
	(&outage{}).checkCounts(s, l, 0)
}
