package compat

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"gopkg.in/yaml.v3"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
)

// behaviour is a case of compat.yaml, whose head says what its fields are.
type behaviour struct {
	Name            string
	Rules           string
	RulesFiles      map[string]string `yaml:"rules_files"`
	Env             map[string]string
	WantConfigError *bool `yaml:"want_config_error"`
	Reason          string
	Steps           []step
	WantStats       map[string]float64 `yaml:"want_stats"`
	WantRedis       map[string]int64   `yaml:"want_redis"`
	Compat          string
	Better          string
	Source          string

	// WantSaid is what both check and the log of a running service must say.
	WantSaid string `yaml:"-"`
}

type step struct {
	AtSeconds         *int64 `yaml:"at_seconds"`
	Repeat            int
	Domain            string
	HitsAddend        uint32 `yaml:"hits_addend"`
	Descriptors       [][][2]string
	PerDescriptorHits []*uint64 `yaml:"per_descriptor_hits"`
	Overrides         []*override
	Negative          []bool
	Want              []string
	WantOverall       string            `yaml:"want_overall"`
	WantRemaining     []uint32          `yaml:"want_remaining"`
	WantLimit         []*uint32         `yaml:"want_limit"`
	WantError         *wantError        `yaml:"want_error"`
	WantHeaders       map[string]string `yaml:"want_headers"`
	WantMetadata      map[string]any    `yaml:"want_metadata"`
}

type override struct {
	RequestsPerUnit uint32 `yaml:"requests_per_unit"`
	Unit            string
}

type wantError struct {
	Code, Message string
	HTTP          int
}

// better is an entry of better.yaml, whose head says what its fields are.
type better struct {
	Name            string
	Why             string
	WantConfigError *bool  `yaml:"want_config_error"`
	WantSaid        string `yaml:"want_said"`
	Steps           []step
	WantRedis       map[string]int64 `yaml:"want_redis"`
	NativeRedis     map[string]int64 `yaml:"native_redis"`
}

// in is c with what it must show in a mode instead.
func (b *better) in(mode string, c behaviour) behaviour {
	c.WantConfigError, c.WantSaid, c.Steps = b.WantConfigError, b.WantSaid, b.Steps
	c.WantStats, c.WantRedis = nil, b.WantRedis
	if mode == native && b.NativeRedis != nil {
		c.WantRedis = b.NativeRedis
	}
	return c
}

// needsBetter tells whether c is something that we don't copy: a defect, or a surprise at load.
func (c *behaviour) needsBetter() bool {
	return c.Compat == "defect" || c.Compat == "quirk" && regexp.MustCompile("^load_").MatchString(c.Name)
}

func readCases(t *testing.T) []behaviour {
	t.Helper()
	var file struct {
		Version int
		Cases   []behaviour
	}
	readYAML(t, "compat.yaml", &file)
	return file.Cases
}

func readBetter(t *testing.T) map[string]*better {
	t.Helper()
	var list []*better
	readYAML(t, "better.yaml", &list)
	byName := map[string]*better{}
	for _, b := range list {
		byName[b.Name] = b
	}
	if len(byName) != len(list) {
		t.Fatal("better.yaml has a name twice")
	}
	return byName
}

// readYAML refuses fields that it doesn't know: none of them may go unchecked.
func readYAML(t *testing.T, name string, into any) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	decoder.KnownFields(true)
	if err := decoder.Decode(into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// files are the case's rule files.
func (c *behaviour) files() map[string]string {
	if c.RulesFiles != nil {
		return c.RulesFiles
	}
	return map[string]string{"rules.yaml": c.Rules}
}

var unitPattern = regexp.MustCompile(`unit: *(\w+)`)

// periods are the lengths of all units that the case uses.
func (c *behaviour) periods() []time.Duration {
	var names []string
	for _, text := range c.files() {
		for _, found := range unitPattern.FindAllStringSubmatch(text, -1) {
			names = append(names, found[1])
		}
	}
	for _, s := range c.Steps {
		for _, o := range s.Overrides {
			names = append(names, o.Unit)
		}
	}
	var periods []time.Duration
	for _, name := range names {
		if unit, ok := descriptors.ParseUnit(name); ok {
			period, _ := unit.Period(1)
			periods = append(periods, period)
		}
	}
	return periods
}

// request is what the step asks.
func (s *step) request() (*ratelimit.RateLimitRequest, error) {
	req := &ratelimit.RateLimitRequest{Domain: s.Domain, HitsAddend: s.HitsAddend}
	for i, entries := range s.Descriptors {
		d := &common.RateLimitDescriptor{}
		for _, e := range entries {
			d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: e[0], Value: e[1]})
		}
		if i < len(s.PerDescriptorHits) && s.PerDescriptorHits[i] != nil {
			d.HitsAddend = wrapperspb.UInt64(*s.PerDescriptorHits[i])
		}
		d.IsNegativeHits = i < len(s.Negative) && s.Negative[i]
		if i < len(s.Overrides) && s.Overrides[i] != nil {
			unit, ok := typev3.RateLimitUnit_value[s.Overrides[i].Unit]
			if !ok {
				return nil, fmt.Errorf("a limit has no unit %q", s.Overrides[i].Unit)
			}
			d.Limit = &common.RateLimitDescriptor_RateLimitOverride{
				RequestsPerUnit: s.Overrides[i].RequestsPerUnit, Unit: typev3.RateLimitUnit(unit),
			}
		}
		req.Descriptors = append(req.Descriptors, d)
	}
	return req, nil
}
