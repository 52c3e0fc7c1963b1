package drills

import (
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// failover is the loss of a master under load, until another one decides.
type failover struct {
	load   *load
	sites  []*site
	master *proctest.Redis
	others []*proctest.Redis // one of which becomes the master
	tell   []*proctest.Redis // the sentinels
	lost   int               // decisions that replicas need not have, in all losses
	slow   []string          // tells of late recoveries
}

// run has the master go, and waits until each replica of the service is answered by the next one, soon after a sentinel
// names that. It returns the next one.
func (f *failover) run(t *testing.T, goes func()) (next *proctest.Redis) {
	t.Helper()
	known := inStep(t, f.master, f.others...)
	began := time.Now()
	var gone time.Time
	p := f.load.during(func() {
		goes()
		gone = time.Now()
		next = awaitMaster(t, f.others...)
		t.Logf("after %s there is another master", time.Since(began))
		awaitNamed(t, next, f.tell...)
		t.Logf("after %s a sentinel names it", time.Since(began))
		if slow := f.load.awaitRecovery(recovery, f.sites...); slow != "" {
			f.slow = append(f.slow, slow)
		}
	})
	if late := p.checkOutage(t); late != "" {
		t.Error(late)
	}
	f.lost += f.load.calledSince(known, gone, "local")
	f.load.awaitCalm("with another master")
	return next
}

// inStep returns when a call began that no replica need lack, whatever becomes of its master now.
func inStep(t testing.TB, master *proctest.Redis, replicas ...*proctest.Redis) time.Time {
	t.Helper()
	offset := func(c *redis.Client) int {
		_, rest, _ := strings.Cut(c.Info(t.Context(), "replication").Val(), "master_repl_offset:")
		line, _, _ := strings.Cut(rest, "\r")
		n, err := strconv.Atoi(line)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		return n
	}
	known := time.Now().Add(-deadline)
	want := offset(master.Client())
	for _, r := range replicas {
		client := r.Client()
		proctest.Eventually(t, "a replica has what its master has", func() bool { return offset(client) >= want })
	}
	return known
}

// awaitMaster returns the first of some servers that takes itself for a master.
func awaitMaster(t testing.TB, servers ...*proctest.Redis) (master *proctest.Redis) {
	t.Helper()
	clients := make([]*redis.Client, len(servers))
	for i, r := range servers {
		clients[i] = r.Client()
	}
	proctest.Eventually(t, "a replica becomes the master", func() bool {
		for i, c := range clients {
			if role, err := c.Do(t.Context(), "ROLE").Slice(); err == nil && role[0] == "master" {
				master = servers[i]
			}
		}
		return master != nil
	})
	return master
}

// awaitNamed returns once one of some sentinels names a master. They ask the servers once a second while they choose one, so
// that it may have been the master for as long.
func awaitNamed(t testing.TB, master *proctest.Redis, sentinels ...*proctest.Redis) {
	t.Helper()
	clients := make([]*redis.Client, len(sentinels))
	for i, s := range sentinels {
		clients[i] = s.Client()
	}
	proctest.Eventually(t, "a sentinel names the master", func() bool {
		return slices.ContainsFunc(clients, func(c *redis.Client) bool {
			addr, err := c.Do(t.Context(), "SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster").StringSlice()
			return err == nil && strings.Join(addr, ":") == master.Addr
		})
	})
}

// calledSince is how many calls of a domain began in a time.
func (l *load) calledSince(from, to time.Time, domain string) (n int) {
	l.t.Helper()
	for _, c := range l.between(0, l.begun()) {
		if c.domain == domain && !c.began.Before(from) && c.began.Before(to) {
			n++
		}
	}
	return n
}

// checkCounts checks that the present master knows what was admitted under local, but for what replicas may lack.
func (f *failover) checkCounts(t *testing.T) {
	t.Helper()
	all := f.load.between(0, f.load.begun()).of("local")
	unsure := all.late
	for _, s := range f.sites {
		unsure += s.unsure("local") + int(s.Metric("envoy_rls_given_back_hits_total", `result="error"`))
	}
	used := 0
	proctest.Eventually(t, "debts are given back", func() bool {
		used = plenty - f.sites[0].left("local", "user", "ann")
		return used >= all.ok-unsure-f.lost
	})
	t.Logf("admitted %d, counted %d; unsure are %d, and lost up to %d", all.ok, used, unsure, f.lost)
	if used > all.ok+unsure {
		t.Errorf("Redis has counted %d, and %d were admitted; unsure are %d", used, all.ok, unsure)
	}
}

// TestSentinelsReplaceAMasterThatIsKilledAndOneThatIsFrozen has both in turn, and thaws the frozen one: for a while there
// are two masters, one of which nobody should ask.
func TestSentinelsReplaceAMasterThatIsKilledAndOneThatIsFrozen(t *testing.T) {
	t.Parallel()
	r := proctest.StartRedisSentinels(t, 2)
	rules := rulesIn(t, policyRules())
	f := &failover{master: r.Master, others: r.Replicas, tell: r.Sentinels}
	for range 2 {
		f.sites = append(f.sites, startSite(t, "--redis="+r.URL(), rules))
	}
	f.load = policyLoad(t, 250, f.sites...)
	f.load.awaitCalm("before")
	second := f.run(t, r.Master.Kill)

	f.master, f.others = second, slices.DeleteFunc(slices.Clone(r.Replicas), func(o *proctest.Redis) bool { return o == second })
	proctest.AwaitReplicas(t, f.others...)
	f.run(t, func() { second.Signal(syscall.SIGSTOP) })
	second.Signal(syscall.SIGCONT)
	f.load.awaitCalls(2 * calm)
	f.load.awaitCalm("after")
	f.load.end()
	if len(f.slow) == 2 { // of which a machine without time may spoil one
		t.Error(f.slow)
	}
	f.checkCounts(t)
	for _, s := range f.sites {
		if store := s.isReady(); store != "ok" {
			t.Errorf("/readyz says of the store: %s", store)
		}
	}
}
