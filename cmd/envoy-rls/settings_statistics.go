package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/metrics"
	"github.com/envoy-rls/envoy-rls/pkg/statsd"
)

// statisticsSettings say where statistics go by the names of the replaced service, beside /metrics of HTTP and admin.
type statisticsSettings struct {
	Statsd     bool     `env:"USE_STATSD" default:"${statsd}" help:"Send statistics to a statsd."`
	StatsdHost string   `env:"STATSD_HOST" default:"localhost" help:"Where it is."`
	StatsdPort port     `env:"STATSD_PORT" default:"8125" help:"Its port."`
	Protocol   protocol `name:"statsd-protocol" env:"STATSD_PROTOCOL" default:"tcp" help:"tcp or udp."`
	Interval   interval `name:"stats-flush-interval" env:"STATS_FLUSH_INTERVAL" default:"10s" help:"How often statistics are sent."`

	DogStatsd  bool     `env:"USE_DOG_STATSD" help:"Send statistics to DogStatsD, by UDP, at the same host and port; not to a statsd, unless that is asked for, too."`
	Mogrifiers []string `name:"dog-statsd-mogrifiers" env:"USE_DOG_STATSD_MOGRIFIERS" placeholder:"NAME" help:"Rewrite names for DogStatsD, as DOG_STATSD_MOGRIFIER_NAME_PATTERN, _NAME and _TAGS say."`

	ExtraTags    tags `env:"EXTRA_TAGS" placeholder:"NAME:VALUE,…" help:"Tags of all statistics that are sent, and labels of all series that have the replaced service's names."`
	DisableStats bool `env:"DISABLE_STATS" help:"Send nothing, and open no port for metrics."`

	MetricsListener bool   `env:"USE_PROMETHEUS" help:"Serve metrics on an address of their own, too, and nothing else there."`
	MetricsAddr     string `env:"PROMETHEUS_ADDR" default:":9090" placeholder:"HOST:PORT" help:"That address."`
	MetricsPath     string `env:"PROMETHEUS_PATH" default:"/metrics" placeholder:"PATH" help:"The path there."`
	Milliseconds    bool   `name:"response-time-milliseconds" env:"PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS" help:"Tell ratelimit_service_response_time_seconds in milliseconds."`
}

func (s *statisticsSettings) check() (errs []error) {
	if err := s.replaced().Validate(); err != nil {
		errs = append(errs, fmt.Errorf("--extra-tags (EXTRA_TAGS): %w", err))
	}
	if s.DogStatsd {
		if _, err := s.mogrifiers(); err != nil {
			errs = append(errs, err)
		}
	}
	if !s.listens() {
		return errs
	}
	if _, port, err := net.SplitHostPort(s.MetricsAddr); err != nil || notPort(port) {
		errs = append(errs, fmt.Errorf("--metrics-addr (PROMETHEUS_ADDR) is %q: want host:port, or :port", s.MetricsAddr))
	}
	if !strings.HasPrefix(s.MetricsPath, "/") {
		errs = append(errs, fmt.Errorf("--metrics-path (PROMETHEUS_PATH) is %q: want a path that begins with /", s.MetricsPath))
	}
	return errs
}

func notPort(text string) bool {
	_, err := strconv.ParseUint(text, 10, 16)
	return err != nil
}

func (s *statisticsSettings) listens() bool { return s.MetricsListener && !s.DisableStats }

func (s *statisticsSettings) sendsDog() bool { return s.DogStatsd && !s.DisableStats }

// sendsStatsd tells whether a statsd gets statistics: not by default beside DogStatsD.
func (s *settings) sendsStatsd() bool {
	st := &s.Statistics
	return st.Statsd && !st.DisableStats && (!st.DogStatsd || s.wantsStatsd())
}

// wantsStatsd tells whether, if a statsd gets statistics, somebody said so, other than compat mode's default.
func (s *settings) wantsStatsd() bool {
	if s.Compat == "" {
		return true
	}
	for _, name := range []string{"USE_STATSD", "STATSD_HOST", "STATSD_PORT", "STATSD_PROTOCOL"} {
		if _, set := os.LookupEnv(name); set {
			return true
		}
	}
	return false
}

func (s *statisticsSettings) replaced() metrics.ReplacedOptions {
	return metrics.ReplacedOptions{Tags: s.ExtraTags.Tags, Milliseconds: s.Milliseconds}
}

func (s *statisticsSettings) sender() statsd.Options {
	return statsd.Options{
		Address:  net.JoinHostPort(s.StatsdHost, strconv.Itoa(int(s.StatsdPort))),
		Network:  string(s.Protocol),
		Interval: time.Duration(s.Interval),
		Tags:     s.ExtraTags.Tags,
	}
}

// mogrifiers are those whose names are listed, in this order.
func (s *statisticsSettings) mogrifiers() (list []*statsd.Mogrifier, err error) {
	var errs []error
	for _, name := range s.Mogrifiers {
		prefix := "DOG_STATSD_MOGRIFIER_" + strings.TrimSpace(name)
		m, err := statsd.NewMogrifier(os.Getenv(prefix+"_PATTERN"), os.Getenv(prefix+"_NAME"), os.Getenv(prefix+"_TAGS"))
		if err != nil {
			errs = append(errs, fmt.Errorf("%s_PATTERN, _NAME and _TAGS: %w", prefix, err))
			continue
		}
		list = append(list, m)
	}
	return list, errors.Join(errs...)
}

// The types of these settings.
type (
	protocol string
	interval time.Duration
	tags     struct{ statsd.Tags }
)

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *protocol) UnmarshalText(text []byte) error { return oneOf(p, text, "tcp", "udp") }

// UnmarshalText implements encoding.TextUnmarshaler.
func (i *interval) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil || v < 100*time.Millisecond {
		return errors.New("want a duration of 100ms or more with its unit, such as 10s")
	}
	*i = interval(v)
	return nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (t *tags) UnmarshalText(text []byte) (err error) {
	t.Tags, err = statsd.ParseTags(string(text))
	return err
}
