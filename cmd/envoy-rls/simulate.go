package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/envoy-rls/envoy-rls/internal/accesslog"
	"github.com/envoy-rls/envoy-rls/internal/simulate"
	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

// simulateCommand asks rules what they would have said to traffic.
type simulateCommand struct {
	Logs []string `arg:"" optional:"" name:"log" help:"Access logs, in order of time; may be gzipped."`

	Rules      []string    `required:"" placeholder:"PATH" help:"Rule files, directories of them, and Kubernetes ConfigMap manifests."`
	Against    []string    `placeholder:"PATH" help:"The same rules as they would be after a change."`
	Domain     string      `help:"The domain, as Envoy's filter has it. Default: the one that the rules are for."`
	Descriptor []string    `short:"d" sep:"none" placeholder:"KEY={FIELD},…" help:"What the proxy makes of a request; may be given again. Texts may stand around fields."`
	Hits       string      `placeholder:"{FIELD}" help:"What a request costs: a field, or a number. Default: 1."`
	Limit      clientLimit `placeholder:"N/UNIT" help:"A limit that requests bring along, such as 5/minute or 5/15minute."`

	Format    logFormat `placeholder:"FORMAT" help:"common (also combined), envoy (also Istio's), or json. Default: by the first line."`
	TimeField string    `placeholder:"FIELD" help:"Where JSON has the time. Default: start_time, time, timestamp, @timestamp or ts."`

	Traffic simulateTraffic `embed:""`
	Service simulateService `embed:""`

	Top      positive   `default:"10" help:"How many of those who are refused most are named."`
	Redact   bool       `help:"Number values instead of showing them."`
	JSON     bool       `name:"json" help:"Print the report as JSON."`
	Plot     string     `placeholder:"FILE" help:"Draw, as SVG, what is admitted of the counter that refuses most."`
	FailOver percentage `placeholder:"PERCENT" help:"Exit 1 if more of the requests are refused, or with --against newly refused."`
}

// simulateTraffic is made-up traffic.
type simulateTraffic struct {
	Generate shape    `placeholder:"SHAPE" help:"Make traffic up: steady, boundary-burst, abuser or diurnal. Its field is {value}."`
	Rate     rate     `default:"10" help:"Requests a second."`
	For      duration `default:"1h" help:"How long it goes on."`
	Values   positive `default:"1" help:"How many values there are."`
	Seed     count    `default:"1" help:"Another one makes other traffic."`
	Window   duration `default:"1m" help:"Of boundary-burst: the period of the limit."`
}

// simulateService is what settings of serve change in verdicts.
type simulateService struct {
	Compat             compatMode `env:"COMPAT" placeholder:"NAME" help:"As serve --compat."`
	Quota              bool       `env:"QUOTA_MODE" help:"As serve --quota."`
	DefaultAlgorithm   algorithm  `env:"DEFAULT_ALGORITHM" default:"fixed_window" help:"As of serve."`
	DefaultCountDenied bool       `env:"DEFAULT_COUNT_DENIED" default:"${count_denied}" help:"As of serve."`
	StopTogether       bool       `name:"stop-increment-when-over-limit" env:"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT" help:"As of serve."`
	MergeDomains       bool       `env:"MERGE_DOMAIN_CONFIG" help:"As of serve."`
	MemoryLimit        byteSize   `env:"MEMORY_LIMIT" default:"256MiB" placeholder:"SIZE" help:"What counters may take, for each set of rules."`
}

// Help is the end of simulate --help.
func (simulateCommand) Help() string {
	return `Examples:
  envoy-rls simulate access.log.gz --rules config/ -d "remote_address={remote_address}"
  envoy-rls simulate access.log --rules config/ --against changed/ -d "user={user},path={path}" --fail-over 0.1%
  envoy-rls simulate --generate abuser --rate 100 --values 50 --rules config/ -d "user={value}" --plot out.svg

Exit status: 0 it was simulated, 1 more than --fail-over is refused, 2 it could not be simulated.`
}

// Validate refuses what says how traffic is made up where it is that of a log.
func (c *simulateCommand) Validate(k *kong.Context) error {
	made := []string{"rate", "for", "values", "seed", "window"}
	for _, at := range k.Path {
		if c.Traffic.Generate == "" && at.Flag != nil && slices.Contains(made, at.Flag.Name) {
			return fmt.Errorf("--%s is for traffic that is made up, by --generate", at.Flag.Name)
		}
	}
	return nil
}

// Run implements the command.
func (c *simulateCommand) Run(s streams) error {
	report, err := c.simulate(s)
	if err == nil {
		err = report.print(s.out, c.JSON)
	}
	switch {
	case err != nil:
		s.complain(err)
		return exitCode(exitUsage)
	case c.FailOver.exceeded(report.counts()):
		return exitCode(exitError)
	}
	return nil
}

// simulation is a run, and what is needed to do it again.
type simulation struct {
	command *simulateCommand
	traffic simulate.Traffic
	log     *simulate.Log // nil: traffic is made up
	rules   []*descriptors.Ruleset
	domain  string
}

func (c *simulateCommand) simulate(s streams) (*simulationReport, error) {
	sim, err := c.prepare()
	if err != nil {
		return nil, err
	}
	var sets []*simulate.Set
	for _, rules := range sim.rules {
		sets = append(sets, sim.set(rules))
	}
	progress := newProgress(s.err, sim)
	run := simulate.Run{Traffic: sim.traffic, Sets: sets, Top: int(c.Top), Progress: progress.show}
	result, err := run.Do()
	progress.clear()
	switch {
	case err != nil:
		return nil, err
	case result.Requests == 0:
		return nil, sim.nothing()
	}
	report := newSimulationReport(sim, result)
	if c.Plot == "" {
		return report, nil
	}
	return report, sim.plot(result, report.names)
}

// prepare reads the rules, and checks all that can be checked before the traffic is read.
func (c *simulateCommand) prepare() (*simulation, error) {
	sim := &simulation{command: c}
	mapping, err := simulate.NewMapping(c.Descriptor, c.Hits)
	if err != nil {
		return nil, err
	}
	if err := sim.source(mapping); err != nil {
		return nil, err
	}
	for _, paths := range [][]string{c.Rules, c.Against} {
		if len(paths) == 0 {
			continue
		}
		rules, err := c.compile(paths)
		if err != nil {
			return nil, err
		}
		sim.rules = append(sim.rules, rules)
	}
	sim.domain, err = c.domain(sim.rules)
	return sim, err
}

// source is where the traffic comes from.
func (sim *simulation) source(m *simulate.Mapping) error {
	c := sim.command
	switch {
	case c.Traffic.Generate != "" && len(c.Logs) > 0:
		return errors.New("traffic is made up by --generate, or is that of a log; not both")
	case c.Traffic.Generate == "" && len(c.Logs) == 0:
		return errors.New("no traffic; give access logs, or --generate")
	case c.Traffic.Generate != "":
		g := simulate.Generator{
			Shape: simulate.Shape(c.Traffic.Generate), Rate: float64(c.Traffic.Rate), For: time.Duration(c.Traffic.For),
			Values: int(c.Traffic.Values), Seed: uint64(c.Traffic.Seed), Window: time.Duration(c.Traffic.Window), Mapping: m,
		}
		sim.traffic = &g
		return g.Check()
	}
	log := &simulate.Log{Files: c.Logs, Mapping: m, Format: accesslog.Format(c.Format), TimeField: c.TimeField}
	again, err := log.Measure()
	if err == nil && !again && c.Plot != "" {
		err = errors.New("--plot reads the log twice, and one of these can't be read again; give files")
	}
	sim.traffic, sim.log = log, log
	return err
}

func (c *simulateCommand) compile(paths []string) (*descriptors.Ruleset, error) {
	read, err := descriptors.ReadFiles(paths)
	if err != nil {
		return nil, err
	}
	rules, problems := descriptors.Compile(descriptors.Unpack(read...), descriptors.Options{
		Defaults: c.defaults(), FileOrder: c.Service.Compat != "", StopTogether: c.Service.StopTogether, Merge: c.Service.MergeDomains,
	})
	var errs []error
	for _, p := range problems {
		if p.Severity == descriptors.Error {
			errs = append(errs, errors.New(p.String()))
		}
	}
	return rules, errors.Join(errs...)
}

func (c *simulateCommand) defaults() descriptors.Defaults {
	return descriptors.Defaults{
		Algorithm: limiter.Algorithm(c.Service.DefaultAlgorithm), CountDenied: c.Service.DefaultCountDenied,
	}
}

// domain is the one that is asked for, else the only one of all rules.
func (c *simulateCommand) domain(sets []*descriptors.Ruleset) (string, error) {
	var names []string
	for _, rules := range sets {
		for _, d := range rules.Sorted() {
			names = append(names, d.Name)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	switch {
	case c.Domain != "" && slices.Contains(names, c.Domain):
		return c.Domain, nil
	case c.Domain != "":
		return "", fmt.Errorf("--domain is %q, and the rules are for %s", c.Domain, strings.Join(names, ", "))
	case len(names) == 1:
		return names[0], nil
	case len(names) == 0:
		return "", errors.New("there are no rules in " + strings.Join(append(c.Rules, c.Against...), ", "))
	}
	return "", fmt.Errorf("--domain is missing, and the rules are for %s", strings.Join(names, ", "))
}

// set asks rules, without any counts.
func (sim *simulation) set(rules *descriptors.Ruleset) *simulate.Set {
	c := sim.command
	return simulate.NewSet(rules, simulate.Options{
		Domain:      sim.domain,
		Service:     rls.Options{Defaults: c.defaults(), Quota: c.Service.Quota, Compat: c.Service.Compat != ""},
		Limit:       c.Limit.override(),
		MemoryLimit: int(c.Service.MemoryLimit),
	})
}

// nothing is why there was no request.
func (sim *simulation) nothing() error {
	if sim.log == nil {
		return errors.New("--rate and --for make no request")
	}
	lines := sim.log.Lines
	why := fmt.Sprintf("of %s none makes a request", counted(int(lines.All), "line"))
	if lines.Without > 0 {
		why += fmt.Sprintf("; %d have no value in a field of each --descriptor", lines.Without)
	}
	for _, bad := range lines.Shown {
		why += "\n" + bad
	}
	return errors.New(why)
}

// plot runs through the traffic once more, and draws the counter that refuses most.
func (sim *simulation) plot(first *simulate.Result, names *valueNames) error {
	last := len(sim.rules) - 1
	if len(first.Sets[last].Who) == 0 {
		return errors.New("--plot: nothing is refused, so there is no counter to draw")
	}
	who, set := first.Sets[last].Who[0].Who, sim.set(sim.rules[last])
	series := simulate.NewSeries(set, who, first.From, first.To)
	run := simulate.Run{Traffic: sim.traffic, Sets: []*simulate.Set{set}, Top: 1, Each: series.Add}
	if _, err := run.Do(); err != nil {
		return err
	}
	picture, err := series.SVG(names.all(who.Values))
	if err != nil {
		return err
	}
	if err := os.WriteFile(sim.command.Plot, picture, 0o644); err != nil {
		return fmt.Errorf("--plot: %w", err)
	}
	return nil
}
