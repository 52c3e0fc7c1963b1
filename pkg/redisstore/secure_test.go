package redisstore

import (
	"context"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
	"github.com/envoy-rls/envoy-rls/pkg/certs"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// startSecure starts a server with the authority's certificate of a name.
func startSecure(t *testing.T, a *proctest.Authority, name string) (url string) {
	t.Helper()
	_, secured := proctest.StartSecureRedis(t, a, name)
	return "rediss://" + secured
}

func TestConnectionsAreSecured(t *testing.T) {
	a := proctest.NewAuthority(t)
	a.Sign("server")
	a.Sign("named", func(c *x509.Certificate) { c.IPAddresses, c.DNSNames = nil, []string{"redis.example"} })
	a.Sign("client")
	url, named := startSecure(t, a, "server"), startSecure(t, a, "named")
	good := TLS{
		Client: certs.Client{Authorities: certs.NewAuthorities(a.File("ca.crt"), nil), Certificate: certs.NewPair(a.File("client.crt"), a.File("client.key"), nil)},
	}
	for name, c := range map[string]struct {
		url    string
		change func(*TLS)
		want   string
	}{
		"good":                         {url, func(*TLS) {}, ""},
		"without the CA":               {url, func(o *TLS) { o.Authorities = nil }, "unknown authority"},
		"without a client certificate": {url, func(o *TLS) { o.Certificate = nil }, "certificate required|reset|broken pipe|EOF"},
		"another name":                 {named, func(*TLS) {}, "doesn't contain any IP SANs"},
		"a server's name":              {named, func(o *TLS) { o.ServerName = "redis.example" }, ""},
		"names are not checked":        {named, func(o *TLS) { o.SkipNameCheck = true }, ""},
		"names aren't, the chain is":   {named, func(o *TLS) { o.SkipNameCheck, o.Authorities = true, nil }, "unknown authority"},
	} {
		o := Options{Address: c.url, TLS: good, Prefix: "p:", Timeout: 5 * time.Second}
		c.change(&o.TLS)
		s, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		err = s.Check(t.Context())
		if (err == nil) != (c.want == "") || err != nil && !regexp.MustCompile(c.want).MatchString(err.Error()) {
			t.Errorf("%s: the error is %v, want %q", name, err, c.want)
		}
		_ = s.Close()
	}
}

// TestNoRequestIsSentWhereTheServerHasHungUp ends all connections, and has none of them cost a request.
func TestNoRequestIsSentWhereTheServerHasHungUp(t *testing.T) {
	a := proctest.NewAuthority(t)
	a.Sign("server")
	a.Sign("client")
	r, secured := proctest.StartSecureRedis(t, a, "server")
	for _, url := range []string{r.URL(), "rediss://" + secured} {
		s, err := Open(Options{Address: url, Prefix: "p:", Timeout: 5 * time.Second, TLS: TLS{Client: certs.Client{
			Authorities: certs.NewAuthorities(a.File("ca.crt"), nil), Certificate: certs.NewPair(a.File("client.crt"), a.File("client.key"), nil),
		}}})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close() }()
		for range 3 {
			if err := s.Decide(t.Context(), batch("a", 1)); err != nil {
				t.Errorf("%s: %v", url, err)
			}
			if err := r.Client().Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal").Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestATicketForALaterSessionIsNoFarewell looks at a connection before anything was read of it.
func TestATicketForALaterSessionIsNoFarewell(t *testing.T) {
	a := proctest.NewAuthority(t)
	a.Sign("server")
	a.Sign("client")
	r, secured := proctest.StartSecureRedis(t, a, "server")
	d := newDialer(&target{tls: true, options: &Options{DialTimeout: 5 * time.Second, TLS: TLS{Client: certs.Client{
		Authorities: certs.NewAuthorities(a.File("ca.crt"), nil), Certificate: certs.NewPair(a.File("client.crt"), a.File("client.key"), nil),
	}}}})
	c, err := d.dial(t.Context(), "tcp", secured)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }() // the server has
	socket, ok := c.(securedSocket)
	if !ok {
		t.Fatalf("the connection is a %T", c)
	}
	come := func() bool {
		raw, err := socket.socket.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		return readable(raw)
	}
	proctest.Eventually(t, "tickets come", come)
	if _, err := socket.SyscallConn(); err != nil {
		t.Errorf("with tickets to read: %v", err)
	}
	if err := r.Client().Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal").Err(); err != nil {
		t.Fatal(err)
	}
	proctest.Eventually(t, "the server hangs up", come)
	if _, err := socket.SyscallConn(); err == nil {
		t.Error("it isn't noticed that the server has hung up")
	}
}

// TestCertificatesAreReadForEachConnection replaces a client's certificate, which the server doesn't trust, in its place.
func TestCertificatesAreReadForEachConnection(t *testing.T) {
	a, other := proctest.NewAuthority(t), proctest.NewAuthority(t)
	a.Sign("server")
	other.Sign("client")
	for _, name := range []string{"client.crt", "client.key"} {
		if err := os.Rename(other.File(name), a.File(name)); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Open(Options{Address: startSecure(t, a, "server"), Prefix: "p:", Timeout: 5 * time.Second, TLS: TLS{
		Client: certs.Client{Authorities: certs.NewAuthorities(a.File("ca.crt"), nil), Certificate: certs.NewPair(a.File("client.crt"), a.File("client.key"), nil)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if err := s.Check(t.Context()); err == nil {
		t.Error("a certificate of another authority is trusted")
	}
	a.Sign("client")
	proctest.Eventually(t, "the new certificate is used", func() bool { return s.Check(t.Context()) == nil })
}

// TestPasswordsAreReadForEachConnection changes a password, of a server or of its sentinel, which drops the connections it has.
func TestPasswordsAreReadForEachConnection(t *testing.T) {
	ctx := context.Background()
	r := proctest.StartRedis(t)
	sentinel := proctest.StartSentinel(t, r.Addr)
	file := filepath.Join(t.TempDir(), "password")
	for name, c := range map[string]struct {
		asked *proctest.Redis
		o     Options
	}{
		"a server":   {r, Options{Address: r.Addr, AuthFile: file}},
		"a sentinel": {sentinel, Options{Address: "redis+sentinel://" + sentinel.Addr + "/mymaster", SentinelFile: file}},
	} {
		t.Run(name, func(t *testing.T) {
			admin := c.asked.Client()
			set := func(password string) {
				t.Helper()
				if err := os.WriteFile(file, []byte("limiter:"+password+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
				if err := admin.ACLSetUser(ctx, "limiter", "on", "resetpass", ">"+password, "~*", "&*", "+@all").Err(); err != nil {
					t.Fatal(err)
				}
			}
			drop := func(r *redis.Client, filter ...string) (connections int64) {
				t.Helper()
				n, err := r.ClientKillByFilter(ctx, filter...).Result()
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
			c.o.Prefix, c.o.Timeout = "p:", 5*time.Second
			set("first")
			s, err := Open(c.o)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = s.Close() }()
			decide(t, s, "a", 1)
			set("second")
			if drop(admin, "USER", "limiter") == 0 {
				t.Error("the password was not used")
			}
			drop(r.Client(), "TYPE", "normal")
			proctest.Eventually(t, "the new password is used", func() bool { return s.Decide(ctx, batch("a", 0)) == nil })
			if drop(admin, "USER", "limiter") == 0 {
				t.Error("there is no connection by the new password")
			}
		})
	}
}

// documented are the rules of docs/redis.md for a user of a server, and what it needs beyond them in a cluster, for looking for
// counters, and for another database than the first.
func documented(t *testing.T) (server, cluster, sweep, database []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(proctest.Root(), "docs", "redis.md"))
	if err != nil {
		t.Fatal(err)
	}
	rules := func(begin, end string) []string {
		_, rest, _ := strings.Cut(string(text), begin)
		line, _, found := strings.Cut(rest, end)
		if !found {
			t.Fatalf("the document has nothing between %q and %q", begin, end)
		}
		return strings.Fields(strings.ReplaceAll(line, "\\", " "))
	}
	return rules("\nACL SETUSER limiter ", "\n```"), rules("In a cluster also `", "`"), rules("by rule also `", "`"), rules("than 0 also `", "`")
}

// TestTheDocumentedPermissionsAreEnough has a user do all that a store does, with the rules of docs/redis.md, for which it
// needs each of them.
func TestTheDocumentedPermissionsAreEnough(t *testing.T) {
	server, inCluster, sweep, database := documented(t)
	single, cluster := proctest.StartRedis(t), proctest.StartRedisCluster(t, 2, false)
	for url, c := range map[string]struct {
		servers []*proctest.Redis
		rules   []string
	}{
		single.URL():        {[]*proctest.Redis{single}, server},
		single.URL() + "/1": {[]*proctest.Redis{single}, slices.Concat(server, database)},
		cluster.URL():       {cluster.Masters, slices.Concat(server, inCluster)},
	} {
		permit := func(rules ...string) {
			t.Helper()
			for _, r := range c.servers {
				if err := r.Client().ACLSetUser(t.Context(), "limiter", rules...).Err(); err != nil {
					t.Fatal(err)
				}
			}
		}
		permit(append([]string{"reset"}, c.rules...)...)
		s, err := Open(Options{Address: url, Auth: "limiter:secret", Prefix: "rls:", Timeout: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close() }()
		useAll(t, s)
		if s.target.kind == Cluster {
			slot, from, to := move(cluster, s.prefixes[0])
			cluster.BeginMove(t, slot, from, to)
			useAll(t, s)
			cluster.MoveSlot(t, slot, from, to)
			useAll(t, s)
		}
		all := func(string) (drop, more bool) { return true, true }
		if err := s.Sweep(t.Context(), "1", all); err == nil {
			t.Error("counters are looked for without permission")
		}
		permit(sweep...)
		if err := s.Sweep(t.Context(), "1", all); err != nil {
			t.Error(err)
		}
	}
	used := ""
	for _, r := range append(cluster.Masters, single) {
		used += r.Client().Info(t.Context(), "commandstats").Val()
	}
	for _, rule := range slices.Concat(server, inCluster, sweep, database) {
		if command, given := strings.CutPrefix(rule, "+"); given && !strings.Contains(used, "cmdstat_"+command+":") {
			t.Errorf("the permission %s is of no use", rule)
		}
	}
}

// useAll does all that a store does, but for looking for counters.
func useAll(t *testing.T, s *Store) {
	t.Helper()
	if err := s.Check(t.Context()); err != nil {
		t.Error(err)
	}
	for _, l := range append(threeOfEach(), threeNamed) {
		for _, cost := range []int64{1, 0, 2, 1, -1} {
			b := batch(l.Algorithm.String(), cost)
			b.Hits[0].Limit = l
			if err := s.Decide(t.Context(), b); err != nil {
				t.Errorf("%s: %v", l.Algorithm, err)
			}
		}
		if _, err := s.Delete(t.Context(), []limiter.Hit{{Key: l.Algorithm.String(), Limit: l}}); err != nil {
			t.Error(err)
		}
	}
	if _, err := s.Heartbeat(t.Context(), Replica{Name: "me"}, time.Minute); err != nil {
		t.Error(err)
	}
	if err := s.Keep(t.Context(), "rules", []byte("kept")); err != nil {
		t.Error(err)
	}
	if kept, err := s.Kept(t.Context(), "rules"); err != nil || string(kept) != "kept" {
		t.Errorf("kept %q, %v", kept, err)
	}
	for _, lifetime := range []time.Duration{time.Minute, 0} {
		if err := s.Note(t.Context(), "note", "text", lifetime); err != nil {
			t.Error(err)
		}
		read(t, s, "unknown")
	}
	if _, err := s.Mark(t.Context()); err != nil {
		t.Error(err)
	}
	if v, policy := s.Version(t.Context()), s.EvictionPolicy(t.Context()); v == "" || policy != "noeviction" {
		t.Errorf("version %q, policy %q", v, policy)
	}
}

func TestAddresses(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{Address: "redis://u:p%40ss@h"}, "single h:6379 u p@ss"},
		{Options{Address: "rediss://h:1/3"}, "single h:1 tls db 3"},
		{Options{Address: "h:1", TLS: TLS{On: true}, Auth: "p"}, "single h:1 p tls"},
		{Options{Address: "unix:///run/redis.sock?db=2"}, "single /run/redis.sock db 2"},
		{Options{Address: "redis+sentinel://u:p@a,b:1/mymaster/4"}, "sentinel a:26379,b:1/mymaster u p db 4"},
		{Options{Address: "redis+sentinel://a/mymaster?db=5"}, "sentinel a:26379/mymaster db 5"},
		{Options{Address: "rediss+cluster://a:1,[::1]:2,[::2]"}, "cluster a:1,[::1]:2,[::2]:6379 tls"},
		{Options{Address: "mymaster,a:1,b:2", Kind: Sentinel}, "sentinel a:1,b:2/mymaster"},
		{Options{Address: "a:1,b:2", Kind: Cluster}, "cluster a:1,b:2"},
		{Options{Address: "redis://a:1,b:2", Kind: Cluster}, "cluster a:1,b:2"},
		{Options{Address: "a:1,b:2"}, "! it lists several servers"},
		{Options{Address: "redis+sentinel://a:1"}, "! the URL ends in the master's name"},
		{Options{Address: "redis+cluster://a:1/3"}, "! a cluster has database 0 only"},
		{Options{Address: "redis://a/x"}, `! the database "x" is not a number`},
		{Options{Address: "mymaster", Kind: Sentinel}, "! \"mymaster\" is not name,host:port"},
		{Options{Address: "a:1", TLS: TLS{On: true, Client: certs.Client{Certificate: certs.NewPair("c", "", nil)}}}, "! reading the client's certificate: a certificate needs its key"},
		{Options{Address: "a:1", TLS: TLS{On: true, Client: certs.Client{Authorities: certs.NewAuthorities("/nowhere", nil)}}}, "! reading the CA"},
	} {
		tgt, err := c.o.target()
		if want, fails := strings.CutPrefix(c.want, "! "); fails {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: the error is %v, want %s", c.o.Address, err, want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.o.Address, err)
			continue
		}
		got := []string{string(tgt.kind), tgt.String()}
		for _, word := range []string{tgt.username, tgt.password} {
			if word != "" {
				got = append(got, word)
			}
		}
		if tgt.tls {
			got = append(got, "tls")
		}
		if tgt.db != 0 {
			got = append(got, fmt.Sprint("db ", tgt.db))
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%s is %s, want %s", c.o.Address, text, c.want)
		}
	}
}
