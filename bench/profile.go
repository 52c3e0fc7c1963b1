package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/google/pprof/profile"
	"github.com/redis/go-redis/v9"
)

// Profile is the subcommand that tells on what the CPU time of a decision is spent.
type Profile struct {
	Binary    string        `help:"The envoy-rls program." required:"" type:"existingfile"`
	Scenarios []string      `help:"What is sent: some of ${scenarios}, or of ${shapes}." default:"spread,hot,nested,sliding,bucket"`
	Stores    []string      `help:"Stores of envoy-rls to measure: memory, redis." enum:"memory,redis" default:"memory,redis"`
	Duration  time.Duration `help:"Length of the measured part, of each." default:"10s"`
	Results   Results       `help:"A directory to write profile.txt into." type:"path"`
	Pressure
}

// spending is what a decision costs, in µs of CPU time.
type spending struct {
	scenario, server string
	service          map[string]float64 // by owner
	redis            redisTimes
	shared           float64 // decisions a call of the script
}

// Run measures and prints. What it started is gone when it returns.
func (p *Profile) Run(ctx context.Context, out io.Writer) error {
	rig, err := newRig()
	if err != nil {
		return err
	}
	defer os.RemoveAll(rig.dir)
	var all []*spending
	for _, scenario := range p.Scenarios {
		for _, contender := range (Binary{Path: p.Binary}).contenders(rig, p.Stores) {
			spent, err := p.measure(ctx, scenario, contender)
			if err != nil {
				return cmp.Or(ctx.Err(), fmt.Errorf("%s, %s: %w", scenario, contender.name, err))
			}
			all = append(all, spent)
		}
	}
	how := fmt.Sprintf("CPU µs a decision. %v each. %d callers on %d connections.", p.Duration, p.Callers, p.Connections)
	text := func(out io.Writer) error {
		if err := heading(ctx, out, p.Binary, how); err != nil {
			return err
		}
		return writeSpending(out, all)
	}
	if err := p.Results.save("profile", text, nil); err != nil {
		return err
	}
	return writeSpending(out, all)
}

// measure starts a server and finds what it spends.
func (p *Profile) measure(ctx context.Context, scenario string, of contender) (_ *spending, err error) {
	workload, err := newWorkload(scenario, benchDomain)
	if err != nil {
		return nil, err
	}
	entered, err := enter(ctx, []contender{of}, workload)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, entered.stop()) }()
	before, err := readRedis(ctx, entered[0].redis)
	if err != nil {
		return nil, err
	}
	spent, err := p.trial(ctx, entered[0])
	if err != nil {
		return nil, err
	}
	after, err := readRedis(ctx, entered[0].redis)
	if err != nil {
		return nil, err
	}
	spent.addRedis(before, after)
	return spent, nil
}

// trial profiles a server while it is measured.
func (p *Profile) trial(ctx context.Context, of entrant) (*spending, error) {
	var samples *profile.Profile
	profiled := make(chan error, 1)
	go func() {
		var err error
		samples, err = profileOf(ctx, of.admin, p.Warmup+p.Duration)
		profiled <- err
	}()
	result, err := of.server.trial(p.Pressure, p.Duration).Run(ctx)
	if err := errors.Join(err, <-profiled); err != nil {
		return nil, err
	}
	spent := &spending{scenario: result.Scenario, server: of.name, service: map[string]float64{}}
	for owner, share := range shares(samples) {
		spent.service[owner] = share * result.cpuOf(serviceName)
	}
	spent.redis.user = result.cpuOf(redisName) // addRedis splits it
	return spent, nil
}

// profileOf profiles the server whose admin port is at the address.
func profileOf(ctx context.Context, admin string, long time.Duration) (*profile.Profile, error) {
	response, err := getProfile(ctx, admin, fmt.Sprintf("profile?seconds=%.0f", max(long.Seconds(), 1)))
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	return profile.Parse(response.Body)
}

// owners are whose a sample is, by the beginning of a function's name: the first frame from the innermost that has one
// tells, so that what a package has the Go runtime or the kernel do is its own. The last ones are for what nobody asked for.
var owners = []struct{ prefix, name string }{
	{"google.golang.org/grpc/", "gRPC"},
	{"google.golang.org/grpc.", "gRPC"},
	{"golang.org/x/net/", "gRPC"},
	{"github.com/redis/", "Redis client"},
	{"github.com/envoy-rls/envoy-rls/pkg/redisstore.", "calls of Redis"},
	{"github.com/envoy-rls/", "match, decide, answer"},
	{"github.com/prometheus/", "match, decide, answer"},
	{"runtime.gcBgMarkWorker", "garbage collection"},
	{"runtime.bgsweep", "garbage collection"},
	{"runtime.bgscavenge", "garbage collection"},
	{"runtime.mcall", "scheduler"},
	{"runtime.mstart", "scheduler"},
	{"runtime.systemstack", "scheduler"},
	{"runtime.goexit", "scheduler"},
}

// other is the owner of what has none of them.
const other = "other"

// rowNames are the owners' in the order of the table.
func rowNames() []string {
	var names []string
	for _, owner := range owners {
		if !slices.Contains(names, owner.name) {
			names = append(names, owner.name)
		}
	}
	return append(names, other)
}

// shares are the owners' shares of the CPU time.
func shares(samples *profile.Profile) map[string]float64 {
	found, sum := map[string]float64{}, 0.0
	for _, sample := range samples.Sample {
		time := float64(sample.Value[len(sample.Value)-1]) // a CPU profile's last value
		found[ownerOf(sample)] += time
		sum += time
	}
	for owner := range found {
		found[owner] /= sum
	}
	return found
}

func ownerOf(sample *profile.Sample) string {
	for _, location := range sample.Location {
		for _, line := range location.Line {
			for _, owner := range owners {
				if strings.HasPrefix(line.Function.Name, owner.prefix) {
					return owner.name
				}
			}
		}
	}
	return other
}

// redisTimes are what a Redis has spent so far, in seconds, for so many calls of the script; or a decision's, in µs.
type redisTimes struct{ user, system, calls float64 }

// readRedis asks the Redis at the address, if there is one.
func readRedis(ctx context.Context, address string) (redisTimes, error) {
	var t redisTimes
	if address == "" {
		return t, nil
	}
	client := redis.NewClient(&redis.Options{Addr: address})
	defer client.Close()
	text, err := client.Info(ctx, "cpu", "commandstats").Result()
	if err != nil {
		return t, err
	}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		into, ok := map[string]*float64{"used_cpu_user": &t.user, "used_cpu_sys": &t.system, "cmdstat_evalsha": &t.calls}[name]
		if !ok {
			continue
		}
		value, _, _ = strings.Cut(strings.TrimPrefix(value, "calls="), ",")
		if *into, err = strconv.ParseFloat(value, 64); err != nil {
			return t, fmt.Errorf("INFO of Redis: %w", err)
		}
	}
	return t, nil
}

// addRedis splits what Redis spends on a decision as it spent in between.
func (s *spending) addRedis(before, after redisTimes) {
	user, system, calls := after.user-before.user, after.system-before.system, after.calls-before.calls
	if micros := s.redis.user; micros > 0 && calls > 0 {
		s.redis = redisTimes{micros * user / (user + system), micros * system / (user + system), calls}
		s.shared = (user + system) * 1e6 / calls / micros
	}
}

// writeSpending prints a column for each server in each scenario.
func writeSpending(out io.Writer, all []*spending) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(name string, cell func(*spending) string) {
		fmt.Fprintf(table, "%s\t", name)
		for _, s := range all {
			fmt.Fprintf(table, "%s\t", cell(s))
		}
		fmt.Fprintln(table)
	}
	row("", func(s *spending) string { return s.scenario })
	row("", func(s *spending) string { return s.server })
	for _, owner := range rowNames() {
		row(owner, func(s *spending) string { return known(s.service[owner]) })
	}
	row("Redis itself", func(s *spending) string { return known(s.redis.user) })
	row("Redis in the kernel", func(s *spending) string { return known(s.redis.system) })
	row("sum", func(s *spending) string { return known(s.sum()) })
	row("decisions a script call", func(s *spending) string { return known(s.shared) })
	return table.Flush()
}

func (s *spending) sum() float64 {
	sum := s.redis.user + s.redis.system
	for _, micros := range s.service {
		sum += micros
	}
	return sum
}
