package monitoring

import (
	"crypto/x509"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// incident is what goes wrong in a fleet that was quiet, and what is seen of it.
type incident struct {
	fleet  func(t *testing.T) *fleet // nil: one replica
	stages []stage
}

// stage is one thing that happens, the time that passes then, and all alerts that fire by its end.
type stage struct {
	happens func(*fleet)
	passes  time.Duration
	fires   []string
}

var incidents = map[string]incident{
	"Redis dies and comes back empty": {stages: []stage{
		{func(f *fleet) { f.redis.Kill() }, 8 * time.Minute, []string{"RLSDegraded", "RLSStoreDown"}},
		{redisComesBack, 8 * time.Minute, []string{"RLSCountersLost"}},
		{nothing, 10 * time.Minute, nil},
	}},
	"Redis dies and Envoy's failure mode is to decide": {
		fleet: func(t *testing.T) *fleet { return startFleet(t, 1, "--default-on-store-failure=error") },
		stages: []stage{
			{func(f *fleet) { f.redis.Kill() }, 8 * time.Minute, []string{"RLSDegraded", "RLSErrors", "RLSStoreDown"}},
		},
	},
	"callers leave before they are answered": {
		stages: []stage{
			{redisStandsStillNowAndThen, 12 * time.Minute, []string{"RLSLate"}},
		},
	},
	"no replica is left": {fleet: behindEnvoy, stages: []stage{
		{func(f *fleet) { f.replicas[0].Kill() }, 12 * time.Minute, []string{"RLSAbsent", "RLSBypassed"}},
		{replicaComesBack, 12 * time.Minute, nil},
	}},
	"rules that can't be used are pushed": {stages: []stage{
		{func(f *fleet) { f.push("domain: shop\ndescriptors: 7\n", f.replicas...) }, 6 * time.Minute, []string{"RLSConfigRejected"}},
		{func(f *fleet) { f.push(rulesOfUsual["shop"], f.replicas...) }, time.Minute, nil},
	}},
	"a valid but wrong rule is pushed": {fleet: withBusyUsers, stages: []stage{
		{func(f *fleet) { f.pass(25*time.Hour, 10*time.Minute) }, 10 * time.Minute, nil},
		{perMinuteIsPushed, 4 * time.Minute, []string{"RLSRefusalSpike"}},
		{shadowStopsTheRefusals, 3 * time.Minute, []string{"RLSOverrideActive"}},
		{perSecondIsBack, 3 * time.Minute, nil},
	}},
	"a replica doesn't get new rules": {
		fleet: func(t *testing.T) *fleet { return startFleet(t, 2) },
		stages: []stage{
			{func(f *fleet) { f.push(edited, f.replicas[0]) }, 6 * time.Minute, []string{"RLSConfigDrift"}},
			{func(f *fleet) { f.push(edited, f.replicas[1]) }, time.Minute, nil},
		},
	},
	"Envoy sends what matches no rule": {stages: []stage{
		{func(f *fleet) { f.usual = mistaken("shop", "usr") }, 35 * time.Minute, []string{"RLSNothingMatches"}},
		{func(f *fleet) { f.usual = usualCalls }, 20 * time.Minute, nil},
		{func(f *fleet) { f.usual = mistaken("shpo", "user") }, 35 * time.Minute, []string{"RLSNothingMatches"}},
	}},
	"a domain is not called any more": {stages: []stage{
		{func(f *fleet) { f.usual = func(f *fleet) { f.ask(10, "demo", "user") } }, 75 * time.Minute, []string{"RLSNeverCalled"}},
		{func(f *fleet) { f.ask(10, "shop", "user") }, time.Minute, nil},
	}},
	"a client makes up values": {stages: []stage{
		{makesUpValues, time.Minute, []string{"RLSDistinctValues"}},
	}},
	"an operator overrides a rule": {fleet: func(t *testing.T) *fleet { return withToken(t) }, stages: []stage{
		{overridesARule, time.Minute, []string{"RLSOverrideActive"}},
		{unsetsIt, time.Minute, nil},
	}},
	"all calls go to one replica": {
		fleet: func(t *testing.T) *fleet { return startFleet(t, 3) },
		stages: []stage{
			{allToOne, 25 * time.Minute, []string{"RLSImbalance"}},
		},
	},
	"the control plane dies": {fleet: byControlPlane, stages: []stage{
		{func(f *fleet) { f.plane.Stop() }, 17 * time.Minute, []string{"RLSControlPlaneDown"}},
		{controlPlaneComesBack, time.Minute, nil},
	}},
	"a certificate is not renewed": {fleet: byTLS, stages: []stage{
		{func(f *fleet) { f.pass(82*24*time.Hour, 24*time.Hour) }, 5 * time.Minute, nil},
		{func(f *fleet) { f.pass(2*24*time.Hour, 24*time.Hour) }, 5 * time.Minute, []string{"RLSCertExpiry"}},
	}},
}

const edited = "domain: shop\ndescriptors: [{key: user, rate_limit: {unit: year, requests_per_unit: 2000000}}]\n"

func TestEachAlertFiresInItsIncidentAndInNoOther(t *testing.T) {
	for name, i := range incidents {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i.unfolds(t)
		})
	}
}

func TestEveryAlertHasAnIncident(t *testing.T) {
	known := map[string]bool{}
	for _, i := range incidents {
		for _, s := range i.stages {
			for _, name := range s.fires {
				known[name] = true
			}
		}
	}
	for _, r := range newPrometheus(t).alerts() {
		if !known[r.Name()] {
			t.Errorf("%s fires in no incident", r.Name())
		}
	}
}

func TestNoAlertFiresInAQuietFleet(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3)
	for range 24 {
		f.pass(5*time.Minute, interval)
		f.expect("nothing happens")
	}
}

// unfolds lets it happen, stage by stage.
func (i incident) unfolds(t *testing.T) {
	t.Helper()
	start := i.fleet
	if start == nil {
		start = func(t *testing.T) *fleet { return startFleet(t, 1) }
	}
	f := start(t)
	f.pass(20*time.Minute, interval)
	f.expect("before it")
	for n, s := range i.stages {
		s.happens(f)
		f.pass(s.passes, interval)
		f.expect(fmt.Sprint("stage ", n+1), s.fires...)
	}
}

// expect compares what fires with what should, and reads what it says.
func (f *fleet) expect(when string, want ...string) {
	f.t.Helper()
	firing := f.firing()
	if got := slices.Sorted(maps.Keys(firing)); !slices.Equal(got, want) {
		f.t.Errorf("%s: %q fire, want %q", when, got, want)
	}
	for name, list := range firing {
		for _, a := range list {
			a.Annotations.Range(func(l labels.Label) {
				if strings.Contains(l.Value, "<error") || strings.Contains(l.Value, "<no value>") {
					f.t.Errorf("%s: %s is %q", name, l.Name, l.Value)
				}
			})
			f.t.Logf("%s: %s: %s", when, name, a.Annotations.Get("description"))
		}
	}
}

func nothing(*fleet) {}

func allToOne(f *fleet) {
	f.replicas = f.replicas[:1]
	f.usual = func(f *fleet) { usualCalls(f); usualCalls(f) }
}

func redisComesBack(f *fleet) {
	f.redis.Restart()
	proctest.Eventually(f.t, "Redis is asked again, and found to be empty", func() bool {
		f.usual(f)
		resets := 0.0 // told of by the replica that finds it
		for _, r := range f.replicas {
			resets += r.Metric("envoy_rls_store_resets_total")
		}
		return f.replicas[0].Metric("envoy_rls_store_up") == 1 && resets > 0
	})
}

// redisStandsStillNowAndThen has a caller in every fifth step give up while Redis stands still.
func redisStandsStillNowAndThen(f *fleet) {
	steps := 0
	f.usual = func(f *fleet) {
		if steps++; steps%5 == 0 {
			f.redis.Signal(syscall.SIGSTOP)
			f.leave()
			f.redis.Signal(syscall.SIGCONT)
		}
		usualCalls(f)
	}
}

// leave has a caller give up while Redis stands still.
func (f *fleet) leave() {
	first := f.replicas[0]
	late := func() float64 { return first.Metric("envoy_rls_late_answers_total") }
	before := late()
	proctest.Eventually(f.t, "a caller has left", func() bool {
		first.ask(50*time.Millisecond, "shop", descriptor("user", "bob"))
		return late() > before
	})
}

func makesUpValues(f *fleet) {
	for i := range 90 {
		f.replicas[0].ask(patience, "shop", descriptor("address", fmt.Sprint(i)))
	}
}

func replicaComesBack(f *fleet) {
	f.replicas[0].Restart()
	proctest.Eventually(f.t, "it answers", func() bool { return scrape(f.t, f.targets["replica-0"]) != nil })
}

// mistaken are callers who ask for what no rule is for.
func mistaken(domain, key string) func(*fleet) {
	return func(f *fleet) {
		f.ask(5, "demo", "user")
		f.ask(1, "shop", "user")
		f.ask(20, domain, key)
	}
}

// byTLS is a fleet of one replica, whose certificate is good for 90 days.
func byTLS(t *testing.T) *fleet {
	t.Helper()
	a := proctest.NewAuthority(t)
	a.Sign("server", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(90 * 24 * time.Hour) })
	return startFleet(t, 1, "--grpc-tls", "--grpc-tls-cert="+a.File("server.crt"), "--grpc-tls-key="+a.File("server.key"))
}

// behindEnvoy is a fleet of one replica that an Envoy asks, which is watched, too. It has time enough to wait for a busy machine.
func behindEnvoy(t *testing.T) *fleet {
	t.Helper()
	f := startFleet(t, 1)
	bootstrap, err := os.ReadFile(filepath.Join(proctest.Root(), "deploy", "envoy.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	ingress, admin := proctest.FreePort(t), proctest.FreePort(t)
	_, grpc, _ := strings.Cut(f.replicas[0].GRPC, ":")
	proctest.Envoy(t, strings.NewReplacer("port_value: 9901", fmt.Sprint("port_value: ", admin),
		"port_value: 10000", fmt.Sprint("port_value: ", ingress), "port_value: 8081", "port_value: "+grpc,
		"timeout: 0.05s", "timeout: 10s").Replace(string(bootstrap)), admin)
	f.targets["envoy"] = fmt.Sprintf("http://127.0.0.1:%d/stats/prometheus", admin)
	f.usual = func(f *fleet) {
		usualCalls(f)
		for range 5 {
			request(f.t, fmt.Sprintf("http://127.0.0.1:%d/", ingress))
		}
	}
	return f
}

// request asks Envoy for a page as a client that the rules know. There is no upstream: what it answers does not matter.
func request(t *testing.T, url string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("x-user", "ann")
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Body.Close() // as said
}

// withToken is a fleet of one replica, whose overrides may be changed with what is in the file of that name.
func withToken(t *testing.T, args ...string) *fleet {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("a-token-for-tests-only"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := startFleet(t, 1, append(args, "--admin-token-file="+file)...)
	f.token = file
	return f
}

// override runs a command about overrides, and returns what it says.
func (f *fleet) override(args ...string) string {
	f.t.Helper()
	args = append([]string{"override"}, append(args, "--admin=http://"+f.replicas[0].Admin, "--token-file="+f.token)...)
	out, err := exec.Command(proctest.Binary(f.t), args...).CombinedOutput()
	if err != nil {
		f.t.Fatalf("%q: %v\n%s", args, err, out)
	}
	return string(out)
}

func overridesARule(f *fleet) {
	f.override("set", "--domain=shop", "--rule=shop.user", "--shadow", "--for=1h")
	f.overrides(1)
}

func unsetsIt(f *fleet) {
	_, list, _ := strings.Cut(f.override("list"), "\n")
	f.override("unset", strings.Fields(list)[0])
	f.overrides(0)
}

// overrides waits until the replica counts so many.
func (f *fleet) overrides(n float64) {
	f.t.Helper()
	proctest.Eventually(f.t, "the override is counted", func() bool { return f.replicas[0].Metric("envoy_rls_overrides") == n })
}

// withBusyUsers is a fleet of one replica that admits 100 calls a second of each user, which are enough. Buckets refuse as evenly as
// a window does over many minutes; of those, only moments pass here.
func withBusyUsers(t *testing.T) *fleet {
	t.Helper()
	f := withToken(t, "--default-algorithm=token_bucket")
	f.pushBusy("second")
	f.usual = busyAndAdmitted
	return f
}

func (f *fleet) pushBusy(unit string) {
	f.t.Helper()
	f.push(fmt.Sprintf("domain: shop\ndescriptors: [{key: user, rate_limit: {unit: %s, requests_per_unit: 100}}]\n", unit), f.replicas...)
}

// busy has four users ask 50 times a second each, for a moment, and returns how many calls were refused of those 12.
func busy(f *fleet) (refused float64) {
	f.t.Helper()
	refusals := func() float64 {
		return f.replicas[0].Metric("envoy_rls_decisions_total", `rule="shop.user"`, `result="over_limit"`)
	}
	before, tick := refusals(), time.NewTicker(20*time.Millisecond)
	defer tick.Stop()
	for range 3 {
		<-tick.C
		for _, user := range []string{"ann", "bob", "cyd", "dan"} {
			f.replicas[0].ask(patience, "shop", descriptor("user", user))
		}
	}
	f.ask(1, "demo", "user")
	return refusals() - before
}

func busyAndAdmitted(f *fleet) {
	f.t.Helper()
	if refused := busy(f); refused > 0 {
		f.t.Errorf("%v calls are refused", refused)
	}
}

// perMinuteIsPushed makes 100 a second 100 a minute.
func perMinuteIsPushed(f *fleet) {
	f.pushBusy("minute")
	f.usual = func(f *fleet) { busy(f) }
	proctest.Eventually(f.t, "most calls are refused", func() bool { return busy(f) > 6 })
}

func shadowStopsTheRefusals(f *fleet) {
	f.override("set", "--domain=shop", "--rule=shop.user", "--shadow", "--for=1h", "--reason=INC-4")
	proctest.Eventually(f.t, "nobody is refused any more", func() bool { return busy(f) == 0 })
	f.usual = busyAndAdmitted
}

func perSecondIsBack(f *fleet) {
	f.pushBusy("second")
	unsetsIt(f)
}

// byControlPlane is a fleet of one replica whose rules come from a control plane, but for those of files.
func byControlPlane(t *testing.T) *fleet {
	t.Helper()
	plane := proctest.StartControlPlane(t)
	plane.Set("default", "1", proctest.Resource("gateway", 1000000))
	f := startFleet(t, 1, "--config-type=xds", "--xds-server="+plane.Addr)
	f.plane = plane
	return f
}

func controlPlaneComesBack(f *fleet) {
	f.plane.Start()
	f.plane.Set("default", "2", proctest.Resource("gateway", 1000000))
	f.plane.Acked("2")
}
