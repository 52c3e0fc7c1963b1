package main

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/envoy-rls/envoy-rls/pkg/denycache"
	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

// settings are everything that needs a restart: read once, by kong, from flags and environment, and checked
// as a whole. A variable has the name that it has in the service that this one replaces, where that has it.
type settings struct {
	Compat compatMode `env:"COMPAT" placeholder:"NAME" help:"Take the place of another service, with its defaults: envoyproxy-ratelimit."`

	Host      string `env:"HOST" default:"0.0.0.0" help:"HTTP listens here: /healthcheck, /livez, /readyz, /metrics."`
	Port      port   `env:"PORT" default:"8080" help:"The port of HTTP. 0 picks a free one, as of all ports."`
	GRPCHost  string `name:"grpc-host" env:"GRPC_HOST" default:"0.0.0.0" help:"gRPC listens here."`
	GRPCPort  port   `name:"grpc-port" env:"GRPC_PORT" default:"8081" help:"The port of gRPC."`
	AdminHost string `env:"DEBUG_HOST" default:"${admin_host}" help:"Admin listens here: / lists what there is."`
	AdminPort port   `env:"DEBUG_PORT" default:"6070" help:"The port of admin."`
	HTTPJSON  bool   `name:"http-json" env:"HTTP_JSON" default:"${http_json}" help:"Serve /json on the HTTP port, too."`

	GRPC  grpcListener  `embed:"" prefix:"grpc-"`
	Admin adminListener `embed:"" prefix:"admin-"`

	rulesSource

	Store           storeKind  `env:"STORE,BACKEND_TYPE" placeholder:"KIND" help:"memory or redis. Default: redis if it has an address, else memory."`
	MemoryLimit     byteSize   `env:"MEMORY_LIMIT" default:"256MiB" placeholder:"SIZE" help:"What counters in memory may take."`
	Redis           string     `env:"REDIS_URL" default:"${redis_url}" placeholder:"URL" help:"redis://user:password@host:port/db, rediss:// for TLS, redis+sentinel://host,host/master, redis+cluster://host,host, host:port, or a socket's path."`
	RedisType       redisKind  `env:"REDIS_TYPE" placeholder:"KIND" help:"single, sentinel (then --redis is master,host:port,…) or cluster (host:port,…). Default: by the address."`
	RedisSocketType socketType `env:"REDIS_SOCKET_TYPE" default:"${redis_socket_type}" placeholder:"KIND" help:"tcp or unix. Default: by the address."`
	RedisAuth       string     `env:"REDIS_AUTH" placeholder:"USER:PASSWORD" help:"Better in the environment, where ps does not show it, or in a file."`
	RedisAuthFile   string     `env:"REDIS_AUTH_FILE" placeholder:"FILE" help:"Holds the same, and is read for every connection."`

	RedisSentinelAuth     string   `env:"REDIS_SENTINEL_AUTH" placeholder:"USER:PASSWORD" help:"For sentinels."`
	RedisSentinelAuthFile string   `env:"REDIS_SENTINEL_AUTH_FILE" placeholder:"FILE" help:"Holds the same, and is read for every connection."`
	RedisPoolSize         count    `env:"REDIS_POOL_SIZE" default:"0" placeholder:"N" help:"Connections to a server; 0 is ten for each CPU."`
	RedisConnMaxLifetime  duration `env:"REDIS_CONN_MAX_LIFETIME" default:"0s" help:"Connections that are older are opened anew; 0 is never."`
	RedisInFlight         count    `env:"REDIS_IN_FLIGHT" default:"0" placeholder:"N" help:"Script calls under way at once; 0 is 1, or up to 4 over a slow network."`
	RedisHashTags         count    `env:"REDIS_HASH_TAGS" default:"0" placeholder:"N" help:"Over how many hash tags counters are spread, the same for all replicas; 0 is 1, and 16 in a cluster."`
	RedisTLS              redisTLS `embed:"" prefix:"redis-" envprefix:"REDIS_"`

	RedisStart redisStart `embed:""`

	RedisPerSecond       bool           `env:"REDIS_PERSECOND" help:"Count limits of less than a minute in a Redis of their own."`
	RedisPerSecondServer redisPerSecond `embed:"" prefix:"redis-per-second-" envprefix:"REDIS_PERSECOND_"`

	Keys keySettings `embed:"" prefix:"key-"`

	hashKeySettings

	KeyPrefix    string    `env:"CACHE_KEY_PREFIX" default:"${key_prefix}" help:"Starts the name of each key."`
	DenyCache    cacheSize `env:"DENY_CACHE,LOCAL_CACHE_SIZE_IN_BYTES" default:"${deny_cache}" placeholder:"SIZE" help:"What remembering exhausted counters may take, before Redis; 0 asks Redis each time."`
	StoreTimeout timeout   `env:"STORE_TIMEOUT" default:"auto" help:"Longest time for a decision; auto is half of what the caller grants, from 5 to 50 ms."`

	Replicas   count      `env:"REPLICAS" default:"0" placeholder:"N" help:"How many replicas share the limits, for on_store_failure: local. 0 finds out: by --peers, else in Redis."`
	Peers      string     `env:"PEERS" placeholder:"NAME" help:"A DNS name with an address for each replica, as a headless Service has."`
	LocalShare localShare `env:"LOCAL_SHARE" default:"balanced" help:"What a replica grants by itself of a limit L of N replicas: balanced (L/N + 2√(L/N)), strict (L/N) or full (L)."`

	DefaultAlgorithm      algorithm     `env:"DEFAULT_ALGORITHM" default:"fixed_window" help:"For limits that name none."`
	DefaultCountDenied    bool          `env:"DEFAULT_COUNT_DENIED" default:"${count_denied}" help:"Whether refused requests cost something, for rules that don't say."`
	DefaultOnStoreFailure failurePolicy `env:"DEFAULT_ON_STORE_FAILURE" default:"${on_store_failure}" help:"What answers when the store can't: local (this replica, by its share of each limit), allow, deny, or error (Envoy's failure mode decides)."`
	StopTogether          bool          `name:"stop-increment-when-over-limit" env:"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT" help:"A refused request costs only where it was refused."`
	Shadow                bool          `env:"SHADOW_MODE" help:"Try out all limits: count and report, and answer OK."`
	Quota                 bool          `env:"QUOTA_MODE" help:"Refuse a request only if all of its limits do, as rules with quota_mode do."`

	Headers         bool   `env:"LIMIT_RESPONSE_HEADERS_ENABLED" help:"Add the headers that tell of the limit, what is left, and when it resets."`
	LimitHeader     string `env:"LIMIT_LIMIT_HEADER" default:"RateLimit-Limit" help:"The name of that with the limit."`
	RemainingHeader string `env:"LIMIT_REMAINING_HEADER" default:"RateLimit-Remaining" help:"The name of that with what is left."`
	ResetHeader     string `env:"LIMIT_RESET_HEADER" default:"RateLimit-Reset" help:"The name of that with the seconds until a reset."`
	RetryHeader     string `env:"RETRY_AFTER_HEADER" default:"${retry_header}" help:"Added to refusals: seconds to wait. Empty: not added."`
	RuleHeader      string `env:"RULE_HEADER" default:"${rule_header}" help:"Added to refusals: the limit that refused. Empty: not added."`
	NearRatio       ratio  `env:"NEAR_LIMIT_RATIO" default:"0.8" placeholder:"PART" help:"From which part of a limit on hits count as near it."`
	DynamicMetadata bool   `env:"RESPONSE_DYNAMIC_METADATA" help:"Return the request and the metadata of rules to Envoy."`

	Statistics statisticsSettings `embed:""`
	Tracing    tracingSettings    `embed:"" prefix:"tracing-"`
	Decisions  decisionSettings   `embed:""`

	LogLevel  logLevel `env:"LOG_LEVEL" default:"${log_level}" help:"debug, info, warn or error."`
	level     *slog.LevelVar
	LogFormat string `env:"LOG_FORMAT" default:"text" help:"text or json."`

	MaxConnectionAge      duration `env:"GRPC_MAX_CONNECTION_AGE" default:"${connection_age}" help:"gRPC connections are renewed after this, so that new replicas get traffic."`
	MaxConnectionAgeGrace duration `env:"GRPC_MAX_CONNECTION_AGE_GRACE" default:"${connection_grace}" help:"Calls on an old connection may take this long to end."`
	KeepaliveMinTime      duration `env:"GRPC_KEEPALIVE_MIN_TIME" default:"500ms" help:"A connection that is pinged more often than this is closed."`
	DrainDelay            duration `env:"DRAIN_DELAY" default:"5s" help:"After SIGTERM, serve on as not ready for this long."`
	ShutdownTimeout       duration `env:"SHUTDOWN_TIMEOUT" default:"20s" help:"Then finish calls within this."`
}

// settingDefaults are the defaults that differ between the modes.
func settingDefaults(compat bool) kong.Vars {
	if compat {
		return kong.Vars{
			"admin_host": "0.0.0.0", "http_json": "true", "runtime_root": "/srv/runtime_data/current", "ignore_dot_files": "false",
			"redis_url": "/var/run/nutcracker/ratelimit.sock", "per_second_url": "/var/run/nutcracker/ratelimitpersecond.sock", "redis_socket_type": "unix", "key_prefix": "",
			"count_denied": "true", "retry_header": "", "rule_header": "", "log_level": "warn",
			"on_store_failure": "error", "dial_timeout": "10s", "connection_age": "24h", "connection_grace": "1h", "deny_cache": "0",
			"tracing_service": "RateLimit", "statsd": "true",
		}
	}
	return kong.Vars{
		"admin_host": "127.0.0.1", "http_json": "false", "runtime_root": "", "ignore_dot_files": "true",
		"redis_url": "", "per_second_url": "", "redis_socket_type": "", "key_prefix": "rls:",
		"count_denied": "false", "retry_header": "Retry-After", "rule_header": "RateLimit-Rule", "log_level": "info",
		"on_store_failure": "local", "dial_timeout": "5s", "connection_age": "30m", "connection_grace": "30s", "deny_cache": "8MiB",
		"tracing_service": "envoy-rls", "statsd": "false",
	}
}

// check reports what is wrong with the settings as a whole.
func (s *settings) check() []error {
	var errs []error
	if value, set := os.LookupEnv("REDIS_URL"); set && value == "" && s.Store != storeMemory {
		errs = append(errs, errors.New("REDIS_URL is set, and empty: without it each replica would count for itself; "+
			"give it an address, or say --store=memory"))
	}
	switch {
	case s.Store == storeRedis && s.Redis == "":
		errs = append(errs, errors.New("--store=redis needs --redis or REDIS_URL"))
	case s.storeKind() == storeMemory && s.Store == "" && os.Getenv("KUBERNETES_SERVICE_HOST") != "":
		errs = append(errs, errors.New("in Kubernetes, counting in memory needs --store=memory: each replica would count "+
			"for itself; to share counts, give --redis or REDIS_URL"))
	}
	errs = append(errs, s.checkRedis()...)
	if !s.logsJSON() && !strings.EqualFold(s.LogFormat, "text") && s.Compat == "" {
		errs = append(errs, fmt.Errorf("--log-format (LOG_FORMAT) is %q: want text or json", s.LogFormat))
	}
	errs = append(errs, s.GRPC.check()...)
	errs = append(errs, s.Admin.check()...)
	errs = append(errs, s.checkCertificates()...)
	errs = append(errs, s.Statistics.check()...)
	errs = append(errs, s.checkRulesSource()...)
	errs = append(errs, s.checkHashKey()...)
	for _, h := range []struct{ flag, name string }{
		{"--limit-header (LIMIT_LIMIT_HEADER)", s.LimitHeader}, {"--remaining-header (LIMIT_REMAINING_HEADER)", s.RemainingHeader},
		{"--reset-header (LIMIT_RESET_HEADER)", s.ResetHeader}, {"--retry-header (RETRY_AFTER_HEADER)", s.RetryHeader},
		{"--rule-header (RULE_HEADER)", s.RuleHeader},
	} {
		if strings.ContainsFunc(h.name, notInHeaderName) {
			errs = append(errs, fmt.Errorf("%s: %q is not the name of a header; letters, digits and dashes are", h.flag, h.name))
		}
	}
	return errs
}

func notInHeaderName(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_')
}

func (s *settings) storeKind() storeKind {
	switch {
	case s.Store != "":
		return s.Store
	case s.Redis != "":
		return storeRedis
	}
	return storeMemory
}

// denyCacheOptions are, in compat mode, such that the cache does what the replaced service's own does.
func (s *settings) denyCacheOptions() denycache.Options {
	o := denycache.Options{Size: int(s.DenyCache)}
	if s.Compat != "" {
		o.Uncounted, o.MaxAge = true, limiter.MaxPeriod
	}
	return o
}

func (s *settings) defaults() descriptors.Defaults {
	return descriptors.Defaults{
		Algorithm:      limiter.Algorithm(s.DefaultAlgorithm),
		CountDenied:    s.DefaultCountDenied,
		OnStoreFailure: limiter.FailurePolicy(s.DefaultOnStoreFailure),
	}
}

func (s *settings) compileOptions() (descriptors.Options, error) {
	key, err := s.hashKey()
	return descriptors.Options{
		Defaults: s.defaults(), FileOrder: s.Compat != "", StopTogether: s.StopTogether, Merge: s.MergeDomains,
		ReplacedNames: s.replacedNames(), HashKey: key,
	}, err
}

func (s *settings) serviceOptions(events rls.Events) rls.Options {
	o := rls.Options{
		Defaults:        s.defaults(),
		Headers:         rls.HeaderOptions{RetryAfter: s.RetryHeader, Rule: s.RuleHeader},
		DynamicMetadata: s.DynamicMetadata,
		VerdictMetadata: s.Decisions.InMetadata,
		NearRatio:       float32(s.NearRatio),
		Shadow:          s.Shadow,
		Quota:           s.Quota,
		Compat:          s.Compat != "",
		ReplacedNames:   s.replacedNames(),
		Events:          events,
	}
	if s.Headers {
		o.Headers.Limit, o.Headers.Remaining, o.Headers.Reset = s.LimitHeader, s.RemainingHeader, s.ResetHeader
	}
	return o
}

func (s *settings) logger(w io.Writer) *slog.Logger {
	o := &slog.HandlerOptions{Level: s.level}
	if !s.logsJSON() {
		return slog.New(slog.NewTextHandler(w, o))
	}
	if s.Compat != "" {
		o.ReplaceAttr = oldLogKeys
	}
	return slog.New(slog.NewJSONHandler(w, o))
}

func (s *settings) logsJSON() bool { return strings.EqualFold(s.LogFormat, "json") }

// settingProblems collects every wrong value of the command line and the environment, where kong stops at
// the first.
type settingProblems struct {
	byValue map[*kong.Value]error
	// given are the flags on the command line, which kong reads first. Once it goes on to the environment
	// and the defaults, for all flags, those no longer matter.
	given     map[*kong.Value]bool
	resetting bool
}

// list is the problems of the command that was chosen: kong reads the environment for all of them.
func (p *settingProblems) list(ctx *kong.Context) []error {
	var errs []error
	values := slices.Clone(ctx.Selected().Positional)
	for _, flag := range ctx.Flags() {
		if !flag.Hidden {
			values = append(values, flag.Value)
		}
	}
	for _, v := range values {
		if err := p.byValue[v]; err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// mappers makes kong read the types of settings through p.
func (p *settingProblems) mappers() kong.Option {
	p.byValue, p.given = map[*kong.Value]error{}, map[*kong.Value]bool{}
	options := []kong.Option{
		kong.KindMapper(reflect.Bool, boolMapper{p}),
		kong.WithBeforeReset(func() error {
			p.resetting = true
			return nil
		}),
	}
	for _, v := range append(simulateValues(),
		port(0), count(0), positive(0), duration(0), timeout(0), byteSize(0), cacheSize(0), ratio(0), compatMode(""), storeKind(""), socketType(""), redisKind(""), logLevel(0),
		algorithm(0), failurePolicy(0), localShare(0), clientHits{}, clientLimit{}, checkFormat(""), severity(""), shell(""),
		protocol(""), interval(0), tags{}, otlpProtocol(""), part(0), fileMode(0),
		configType(""), keyFormat(""), equalPairs{}, colonPairs{}, decisionLogKind(""), decisionSample{}, topRows(0),
	) {
		options = append(options, kong.TypeMapper(reflect.TypeOf(v), textMapper{p}))
	}
	return kong.OptionFunc(func(k *kong.Kong) error {
		for _, o := range options {
			if err := o.Apply(k); err != nil {
				return err
			}
		}
		return nil
	})
}

// note keeps what is wrong with a flag; what the command line says of it wins over the environment.
func (p *settingProblems) note(v *kong.Value, text string, err error) {
	if !p.resetting {
		p.given[v] = true
	}
	if err == nil || p.resetting && p.given[v] {
		return
	}
	name, shown := "--"+v.Name, strconv.Quote(text)
	if v.Flag == nil {
		name = v.Name
	}
	for _, env := range v.Tag.Envs {
		if value, set := os.LookupEnv(env); set && value == text {
			name = fmt.Sprintf("%s (--%s)", env, v.Name)
		}
	}
	if v.Target.Type() == reflect.TypeOf(colonPairs{}) {
		shown = "wrong" // it may hold a secret
	}
	mend := err.Error()
	if strings.Contains(text, "://") && strings.HasPrefix(text, "tcp") {
		mend += "; this looks like Kubernetes' service links: set enableServiceLinks: false in the pod, or rename the Service"
	}
	p.byValue[v] = fmt.Errorf("%s is %s: %s", name, shown, mend)
}

// textMapper reads a flag of a type that unmarshals text. A variable that is set, and empty, as templates leave one, says
// nothing.
type textMapper struct{ problems *settingProblems }

// Decode implements kong.Mapper.
func (m textMapper) Decode(ctx *kong.DecodeContext, target reflect.Value) error {
	var text string
	if err := ctx.Scan.PopValueInto("value", &text); err != nil {
		return err
	}
	if text == "" && m.problems.resetting {
		text = ctx.Value.Default
		if !ctx.Value.HasDefault {
			return nil
		}
	}
	u, ok := target.Addr().Interface().(encoding.TextUnmarshaler)
	if !ok {
		return fmt.Errorf("--%s can't be read from text", ctx.Value.Name)
	}
	m.problems.note(ctx.Value, text, u.UnmarshalText([]byte(text)))
	return nil
}

// boolMapper reads a flag that may stand without a value.
type boolMapper struct{ problems *settingProblems }

// IsBool implements kong.BoolMapper.
func (boolMapper) IsBool() bool { return true }

// Decode implements kong.Mapper.
func (m boolMapper) Decode(ctx *kong.DecodeContext, target reflect.Value) error {
	if ctx.Scan.Peek().Type != kong.FlagValueToken {
		m.problems.note(ctx.Value, "", nil)
		target.SetBool(true)
		return nil
	}
	text := fmt.Sprint(ctx.Scan.Pop().Value)
	if text == "" && m.problems.resetting { // as for textMapper
		text = cmp.Or(ctx.Value.Default, "false")
	}
	v, err := strconv.ParseBool(text)
	if err != nil {
		err = errors.New("want true or false")
	}
	m.problems.note(ctx.Value, text, err)
	target.SetBool(v)
	return nil
}
