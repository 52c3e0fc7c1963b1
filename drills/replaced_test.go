package drills

import (
	"strings"
	"testing"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// TestAMasterAndItsReplicaChangePlacesBehindOneName is a planned change, in which no decision is lost: the master holds back
// all writes until its replica has what it has. Those who are connected find out from its refusals.
func TestAMasterAndItsReplicaChangePlacesBehindOneName(t *testing.T) {
	t.Parallel()
	before := proctest.StartRedis(t)
	host, port, _ := strings.Cut(before.Addr, ":")
	after := proctest.StartRedis(t, "--replicaof", host+" "+port)
	proctest.AwaitReplicas(t, after)
	name := proctest.StartProxy(t, before.Addr, 1)
	s := startSite(t, "--redis="+name.URL(), rulesIn(t, policyRules()))
	l := s.policyLoad(250)
	late, slow := "", ""
	for range tries { // of which a machine without time may spoil some
		l.awaitCalm("before")
		p := l.during(func() {
			name.LeadTo(after.Addr)
			if err := before.Client().Do(t.Context(), "FAILOVER").Err(); err != nil {
				t.Fatal(err)
			}
			awaitMaster(t, after)
			slow = l.awaitRecovery(recovery, s)
			l.awaitCalls(calm)
		})
		if late = p.checkOutage(t) + slow; late == "" {
			break
		}
		before, after = after, before
		proctest.AwaitReplicas(t, after)
	}
	if late != "" {
		t.Error(late)
	}
	l.end()
	(&outage{}).checkCounts(s, l, 0)
}
