package redisstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
	"github.com/envoy-rls/envoy-rls/pkg/storetest"
)

func open(t *testing.T, r *proctest.Redis, prefix string) *Store {
	t.Helper()
	return openAt(t, r.URL(), prefix)
}

func openAt(t *testing.T, url, prefix string) *Store {
	t.Helper()
	s, err := Open(Options{Address: url, Prefix: prefix, Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestStore(t *testing.T) {
	r := proctest.StartRedis(t)
	var opened atomic.Int64
	storetest.Run(t, func(t *testing.T, c *storetest.Clock) limiter.Store {
		s := open(t, r, fmt.Sprint(opened.Add(1), ":"))
		if c != nil {
			s.now = c.Micros
			s.jitter = func() int64 { return 1e6 } // real time must not expire what test time keeps
		}
		return s
	})
}

// check waits until the server can be used: a busy machine may hold up Check for longer than it waits.
func check(t *testing.T, s *Store) {
	t.Helper()
	proctest.Eventually(t, "the server answers", func() bool {
		err := s.Check(t.Context())
		if refuses := (*Unsupported)(nil); errors.As(err, &refuses) {
			t.Fatal(err)
		}
		return err == nil
	})
}

var threePerDay = &limiter.Limit{Requests: 3, Period: 24 * time.Hour}

func batch(key string, cost int64) *limiter.Batch {
	return &limiter.Batch{
		Hits:      []limiter.Hit{{Key: key, Cost: cost, Charge: limiter.Together, Limit: threePerDay}},
		Decisions: make([]limiter.Decision, 1),
	}
}

func decide(t *testing.T, s *Store, key string, cost int64) limiter.Decision {
	t.Helper()
	b := batch(key, cost)
	if err := s.Decide(context.Background(), b); err != nil {
		t.Fatal(err)
	}
	return b.Decisions[0]
}

func TestAForgottenScriptCostsNobodyARequest(t *testing.T) {
	r := proctest.StartRedis(t)
	s, admin := open(t, r, "p:"), r.Client()
	for i := range 3 {
		if err := admin.ScriptFlush(context.Background()).Err(); err != nil {
			t.Fatal(err)
		}
		if d := decide(t, s, "a", 1); !d.Allowed || d.Room != int64(2-i) {
			t.Errorf("decision %d is %+v", i, d)
		}
	}
}

// threeOfEach is a limit of three for every algorithm.
func threeOfEach() []*limiter.Limit {
	var limits []*limiter.Limit
	for a := range limiter.AlgorithmNames() {
		l := &limiter.Limit{Algorithm: limiter.Algorithm(a), Requests: 3, Period: 24 * time.Hour}
		if l.Algorithm.HasBurst() {
			l.Burst = 3
		}
		limits = append(limits, l)
	}
	return limits
}

func TestDamagedValuesCountAsNone(t *testing.T) {
	r := proctest.StartRedis(t)
	s, admin := open(t, r, "p:"), r.Client()
	ctx := context.Background()
	damages := map[string]func(key string){
		"a list":            func(key string) { admin.LPush(ctx, key, 1) },
		"a set":             func(key string) { admin.SAdd(ctx, key, 1) },
		"a hash":            func(key string) { admin.HSet(ctx, key, "a", 1) },
		"an old sorted set": func(key string) { admin.ZAdd(ctx, key, redis.Z{Score: 1, Member: 1}) },
		"odd scores": func(key string) {
			admin.ZAdd(ctx, key, redis.Z{Score: math.Inf(1), Member: 1}, redis.Z{Score: float64(time.Now().UnixMicro()) + 0.25, Member: 2})
		},
	}
	for _, value := range []string{
		"", "x", "-5", "1.5", "1e3", "0x10", "9223372036854775808", "007", " 7", "nan", "inf", "1:2", "1:2:3", "::", "-1:-1",
		"99999999999999999999:1:1", "1:99999999999999999999", "99999999999999999999:99999999999999999999", "9007199254740990:1:1", "900719925474:3:3", "9000000000000000:0",
		"4503599627370495", fmt.Sprintf("%d.5", time.Now().Unix()/86400<<32+3), // the present window's
	} {
		damages["the text "+value] = func(key string) { admin.Set(ctx, key, value, 0) }
	}
	for what, damage := range damages {
		for _, l := range threeOfEach() {
			b := batch(fmt.Sprint(what, l.Algorithm), 1)
			b.Hits[0].Limit = l
			key := s.prefixes[0] + b.Hits[0].Key
			damage(key)
			first, second := s.Decide(ctx, b), s.Decide(ctx, b)
			if first != nil || second != nil || !b.Allowed || b.Decisions[0].Room != 1 {
				t.Errorf("%s over %s: %v, %v, %+v", l.Algorithm, what, first, second, b.Decisions[0])
			}
			if ttl := admin.PTTL(ctx, key).Val(); ttl <= 0 {
				t.Errorf("%s over %s: the key lives for %s", l.Algorithm, what, ttl)
			}
		}
	}
}

// TestANumberThatRedisCannotIncrementIsWrittenOver: to Lua, such a text is the present window's count.
func TestANumberThatRedisCannotIncrementIsWrittenOver(t *testing.T) {
	r := proctest.StartRedis(t)
	s, admin := open(t, r, "p:"), r.Client()
	ctx := context.Background()
	clock := &storetest.Clock{}
	clock.Set(time.Now())
	s.now = clock.Micros
	window := clock.Micros() / (24 * time.Hour).Microseconds() % (1 << 20)
	for i, format := range []string{"%d.0", " %d", "%d ", "0%d", "+%d", "%de0", "0x%x"} {
		for _, hits := range []int{1, 2} { // by the short way, and by the other
			key := fmt.Sprint("a", i, hits)
			b := batch(key, 1)
			if hits == 2 {
				b.Hits = append(b.Hits, batch(key+"b", 1).Hits...)
				b.Decisions = make([]limiter.Decision, 2)
			}
			admin.Set(ctx, s.prefixes[0]+key, fmt.Sprintf(format, window<<32+1), 0)
			if err := s.Decide(ctx, b); err != nil || b.Decisions[0].Room != 1 {
				t.Errorf("%s, %d hits: %v, %+v", format, hits, err, b.Decisions[0])
			}
			value, ttl := admin.Get(ctx, s.prefixes[0]+key).Val(), admin.PTTL(ctx, s.prefixes[0]+key).Val()
			if value != fmt.Sprint(window<<32+2) || ttl <= 0 {
				t.Errorf("%s, %d hits: the value is %s for %s", format, hits, value, ttl)
			}
		}
	}
}

func TestEveryKeyExpires(t *testing.T) {
	r := proctest.StartRedis(t)
	s, admin := open(t, r, "p:"), r.Client()
	ctx := context.Background()
	for _, l := range threeOfEach() {
		charge := func(cost int64) limiter.Decision {
			b := batch(l.Algorithm.String(), cost)
			b.Hits[0].Limit = l
			if err := s.Decide(ctx, b); err != nil {
				t.Fatal(err)
			}
			return b.Decisions[0]
		}
		charge(0)
		charge(-2)
		key := s.prefixes[0] + l.Algorithm.String()
		if admin.Exists(ctx, key).Val() != 0 {
			t.Errorf("%s: a look or a give-back made a key", l.Algorithm)
		}
		charge(1)
		d := charge(1)
		most := d.ResetAfter
		if l.Algorithm == limiter.SlidingWindow {
			most += l.Period
		}
		if ttl := admin.PTTL(ctx, key).Val(); ttl < most-time.Minute || ttl > most+11*time.Second {
			t.Errorf("%s: the key lives for %s, its row matters for %s", l.Algorithm, ttl, most)
		}
		charge(-1)
		if ttl := admin.PTTL(ctx, key).Val(); ttl <= 0 || ttl > most+11*time.Second {
			t.Errorf("%s: after a give-back the key lives for %s", l.Algorithm, ttl)
		}
	}
}

func TestAFullServerIsAnErrorAndCountsNothing(t *testing.T) {
	r := proctest.StartRedis(t)
	s, admin := open(t, r, "p:"), r.Client()
	ctx := context.Background()
	decide(t, s, "a", 1)
	admin.ConfigSet(ctx, "maxmemory", "1")
	err := s.Decide(ctx, batch("a", 1))
	if err == nil || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("the error is %v", err)
	}
	admin.ConfigSet(ctx, "maxmemory", "0")
	if d := decide(t, s, "a", 0); d.Room != 2 {
		t.Errorf("there is room for %d, want 2", d.Room)
	}
}

// TestACallThatTimedOutIsNotSentAgain: a frozen server has the call in its socket, and runs it when it thaws. Sent
// again, it would count twice.
func TestACallThatTimedOutIsNotSentAgain(t *testing.T) {
	r := proctest.StartRedis(t)
	s := open(t, r, "p:")
	check(t, s)
	for i := range 3 {
		name := fmt.Sprint("frozen", i)
		r.Signal(syscall.SIGSTOP)
		s.timeout = 20 * time.Millisecond
		if err := s.Decide(context.Background(), batch(name, 1)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the error is %v", err)
		}
		r.Signal(syscall.SIGCONT)
		s.timeout = 5 * time.Second
		if room := decide(t, s, name, 0).Room; room < 2 {
			t.Errorf("one call was counted %d times", 3-room)
		}
	}
}

func TestAReplicaIsAnErrorAndCountsNothing(t *testing.T) {
	r := proctest.StartRedis(t)
	s, admin := open(t, r, "p:"), r.Client()
	ctx := context.Background()
	decide(t, s, "a", 1)
	if err := admin.ReplicaOf(ctx, "127.0.0.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if err := s.Decide(ctx, batch("a", 1)); err == nil || !strings.Contains(err.Error(), "READONLY") {
		t.Errorf("the error is %v", err)
	}
	if err := admin.ReplicaOf(ctx, "no", "one").Err(); err != nil {
		t.Fatal(err)
	}
	if d := decide(t, s, "a", 1); d.Room != 1 {
		t.Errorf("there is room for %d, want 1", d.Room)
	}
}

func TestAMasterThatIsReplacedBehindItsNameFailsNoRequest(t *testing.T) {
	before, after := proctest.StartRedis(t), proctest.StartRedis(t)
	name := proctest.StartProxy(t, before.Addr, 1)
	s := openAt(t, name.URL(), "p:")
	decide(t, s, "a", 1)
	if err := before.Client().ReplicaOf(context.Background(), "127.0.0.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
	name.LeadTo(after.Addr)
	if d := decide(t, s, "a", 1); d.Room != 2 {
		t.Errorf("the new master has room for %d, want 2", d.Room)
	}
}

func TestAnErrorLeavesHitsUndecided(t *testing.T) {
	r := proctest.StartRedis(t)
	s := open(t, r, "p:")
	b := batch("a", 1)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Decide(ctx, b); err == nil || b.Decisions[0].State != limiter.Undecided {
		t.Errorf("with a cancelled context: %v, %+v", err, b.Decisions[0])
	}
	r.Kill()
	if err := s.Decide(context.Background(), b); err == nil || b.Decisions[0].State != limiter.Undecided {
		t.Errorf("with a dead server: %v, %+v", err, b.Decisions[0])
	}
}

func TestCheckNamesWhatAServerRefuses(t *testing.T) {
	r := proctest.StartRedis(t)
	admin := r.Client()
	ctx := context.Background()
	for _, c := range []struct{ user, acl, want string }{
		{"noeval", "-eval", "it refuses scripts (EVAL) that call TIME: NOPERM"},
		{"notime", "-time", "it refuses scripts (EVAL) that call TIME"},
		{"noload", "-script", "it refuses SCRIPT LOAD: NOPERM"},
	} {
		if err := admin.ACLSetUser(ctx, c.user, "on", ">secret", "~*", "+@all", c.acl).Err(); err != nil {
			t.Fatal(err)
		}
		s, err := Open(Options{Address: r.Addr, Auth: c.user + ":secret"})
		if err != nil {
			t.Fatal(err)
		}
		err = s.Check(ctx)
		var refuses *Unsupported
		if !errors.As(err, &refuses) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: the error is %v, want %s", c.user, err, c.want)
		}
		_ = s.Close()
	}
	s := open(t, r, "")
	if err := s.Check(ctx); err != nil {
		t.Errorf("a good server: %v", err)
	}
	if v := s.Version(ctx); !strings.Contains(v, ".") {
		t.Errorf("version %q", v)
	}
	r.Kill()
	var refuses *Unsupported
	if err := s.Check(ctx); err == nil || errors.As(err, &refuses) {
		t.Errorf("a dead server: %v", err)
	}
}

func TestBadAddressesAreNamedWithoutTheirSecrets(t *testing.T) {
	for _, c := range []struct{ address, want string }{
		{"", "the address is empty"},
		{"localhost", `"localhost" is neither a URL, host:port such as localhost:6379, nor the path of a socket`},
		{"localhost:redis", "the port is a number from 1 to 65535"},
		{"redis://u:hunter2@host:99999999/0", "the port is a number from 1 to 65535"},
		{"redis://u:hunt er2%zz@host/0", "not a Redis URL"},
		{"http://u:hunter2@host", "not a Redis URL"},
	} {
		_, err := Open(Options{Address: c.address})
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hunt") {
			t.Errorf("%s: the error is %v, want %s", c.address, err, c.want)
		}
	}
	if _, err := Open(Options{Address: "localhost:6379", Prefix: "a{b}"}); err == nil {
		t.Error("a brace in the prefix is no error")
	}
}

func FuzzReply(f *testing.F) {
	f.Add("", 1)
	f.Add("\x01\x00\x00\x00\x00\x00\x00\x00", 1)
	f.Add("\x01\x00\x00\x00\x00\x00\x00\x00"+string(make([]byte, 64)), 5)
	f.Add("\x01\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00"+string(make([]byte, 64)), 15)
	f.Fuzz(func(t *testing.T, text string, hits int) {
		if hits < 1 || hits > 100 {
			return
		}
		r, err := parseReply(text)
		if err != nil {
			return
		}
		limits := append(threeOfEach(), threeNamed)
		b := &limiter.Batch{Decisions: make([]limiter.Decision, hits)}
		for i := range hits {
			h := batch(fmt.Sprint(i), 1).Hits[0]
			h.Limit = limits[(i+hits)%len(limits)]
			b.Hits = append(b.Hits, h)
		}
		w := waiting(b)
		c := newCall(plain)
		c.taken = []*waiter{w}
		c.fill()
		if err := c.decide(r); (err == nil) != w.decided {
			t.Errorf("decided %t with %v", w.decided, err)
		}
	})
}

func TestALateReplyCostsNoConnection(t *testing.T) {
	proxy := proctest.StartProxy(t, proctest.StartRedis(t).Addr, 1)
	s, err := Open(Options{Address: proxy.URL(), Timeout: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	inTime := func() bool { return s.Decide(context.Background(), batch("a", 0)) == nil }
	// A busy machine may see a reply before its call is over, or only after the connection is given up.
	proctest.Eventually(t, "4 calls are late, and cost no more than a connection", func() bool {
		proctest.Eventually(t, "a call is in time", inTime)
		before, late := proxy.Accepted(), 0
		proxy.Set(proctest.Faults{Late: 1, Delay: 30 * time.Millisecond})
		for range 4 {
			if errors.Is(s.Decide(context.Background(), batch("a", 1)), context.DeadlineExceeded) {
				late++
			}
		}
		proxy.Set(proctest.Faults{})
		proctest.Eventually(t, "a call is in time", inTime)
		return late == 4 && proxy.Accepted()-before <= 1
	})
}
