package main

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/certs"
	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/xds"
)

// rulesSource says where rules come from.
type rulesSource struct {
	ConfigType configType `env:"CONFIG_TYPE" default:"file" placeholder:"KIND" help:"file, or grpc_xds_sotw (in short xds): rules come from a control plane, and --rules has defaults for them, or more rules."`

	Rules               []string `env:"RULES" placeholder:"PATH" help:"Rule files, and directories of *.yaml and *.yml. Default: what the RUNTIME_ settings say, else ./config."`
	RuntimeRoot         string   `env:"RUNTIME_ROOT" default:"${runtime_root}" placeholder:"DIR" help:"Rules are in ROOT/SUBDIRECTORY/APPDIRECTORY."`
	RuntimeSubdirectory string   `env:"RUNTIME_SUBDIRECTORY" placeholder:"DIR" help:"See --runtime-root."`
	RuntimeAppdirectory string   `env:"RUNTIME_APPDIRECTORY" default:"config" placeholder:"DIR" help:"See --runtime-root."`
	IgnoreDotFiles      bool     `name:"runtime-ignoredotfiles" env:"RUNTIME_IGNOREDOTFILES" default:"${ignore_dot_files}" help:"Don't read names that start with a dot. Those that start with two, as in a Kubernetes volume, never are."`

	MergeDomains bool `env:"MERGE_DOMAIN_CONFIG" help:"Several files may have rules for one domain."`

	ForceStart   bool `env:"FORCE_START_WITHOUT_INITIAL_CONFIG" help:"/healthcheck is good from the start, although calls fail until there are rules. /readyz waits for them."`
	NeedsDomains bool `env:"HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED" help:"Without any domain in the rules /healthcheck is bad, and the service not ready."`

	XDS            xdsSettings `embed:"" prefix:"xds-"`
	ConfigSnapshot string      `env:"CONFIG_SNAPSHOT" placeholder:"PLACE" help:"Keep the rules of the control plane in a file, or in Redis (redis), for a start while it is away."`
}

// xdsSettings are those of the connection to a control plane.
type xdsSettings struct {
	Server      string     `env:"CONFIG_GRPC_XDS_SERVER_URL" default:"localhost:18000" placeholder:"HOST:PORT" help:"The control plane."`
	NodeID      string     `env:"CONFIG_GRPC_XDS_NODE_ID" default:"default" placeholder:"ID" help:"Who asks: control planes choose the rules by it."`
	Metadata    equalPairs `name:"node-metadata" env:"CONFIG_GRPC_XDS_NODE_METADATA" placeholder:"K=V,…" help:"More about who asks."`
	Headers     colonPairs `env:"CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS" placeholder:"K:V,…" help:"Headers of the stream."`
	TLS         bool       `name:"tls" env:"CONFIG_GRPC_XDS_SERVER_USE_TLS" help:"Use TLS."`
	CACert      string     `name:"tls-ca" env:"CONFIG_GRPC_XDS_SERVER_TLS_CACERT" placeholder:"FILE" help:"Certificates to trust beside the system's. Files of TLS are read for every connection."`
	ClientCert  string     `name:"tls-cert" env:"CONFIG_GRPC_XDS_CLIENT_TLS_CERT" placeholder:"FILE" help:"This client's certificate."`
	ClientKey   string     `name:"tls-key" env:"CONFIG_GRPC_XDS_CLIENT_TLS_KEY" placeholder:"FILE" help:"Its key."`
	ServerName  string     `name:"tls-server-name" env:"CONFIG_GRPC_XDS_SERVER_TLS_SAN" placeholder:"NAME" help:"The name that the control plane's certificate must have. Default: its host."`
	MaxMessage  cacheSize  `env:"XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES" default:"64MiB" placeholder:"SIZE" help:"The longest message that is taken; 0 is 64MiB."`
	Keepalive   duration   `env:"CONFIG_GRPC_XDS_KEEPALIVE" default:"5m10s" help:"A control plane that is silent for this long is asked whether it is there. Many cut clients that ask more than once in 5m."`
	Retry       duration   `env:"CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL" default:"1s" help:"Wait after the first try to connect that failed; it doubles from one to the next."`
	BackoffFrom duration   `name:"backoff-initial" env:"XDS_CLIENT_BACKOFF_INITIAL_INTERVAL" default:"1s" help:"Wait after a stream that worked and ended."`
	BackoffMax  duration   `env:"XDS_CLIENT_BACKOFF_MAX_INTERVAL" default:"60s" help:"The longest wait."`
	Spread      part       `name:"backoff-spread" env:"XDS_CLIENT_BACKOFF_RANDOM_FACTOR" default:"0.5" placeholder:"PART" help:"By which part a wait is longer or shorter at random."`
	Jitter      bool       `name:"backoff-jitter" env:"XDS_CLIENT_BACKOFF_JITTER" default:"true" help:"Whether it is."`
}

type (
	configType string
	equalPairs map[string]string // of k=v
	colonPairs map[string]string // of k:v
)

const (
	configFile configType = "file"
	configXDS  configType = "grpc_xds_sotw"
)

// snapshotRedis is the --config-snapshot that is not the name of a file.
const snapshotRedis = "redis"

// defaultMaxMessage is what XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES=0 stands for.
const defaultMaxMessage = 64 << 20

// keepaliveTimeout is how long a control plane may take to answer that it is there.
const keepaliveTimeout = 20 * time.Second

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *configType) UnmarshalText(text []byte) error {
	if strings.EqualFold(string(text), "xds") {
		*c = configXDS
		return nil
	}
	return oneOf(c, text, configFile, configXDS)
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *equalPairs) UnmarshalText(text []byte) (err error) {
	*m, err = pairs(string(text), "=")
	return err
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *colonPairs) UnmarshalText(text []byte) (err error) {
	*m, err = pairs(string(text), ":")
	return err
}

// pairs reads a list of keys and values. A value may hold the sign, and a comma may not be part of anything.
func pairs(text, sign string) (map[string]string, error) {
	m := map[string]string{}
	if strings.TrimSpace(text) == "" {
		return m, nil
	}
	for i, item := range strings.Split(text, ",") {
		k, v, ok := strings.Cut(item, sign)
		if k = strings.TrimSpace(k); !ok || k == "" {
			return nil, fmt.Errorf("item %d is not key%svalue; write k%sv,k%sv", i+1, sign, sign, sign)
		}
		m[k] = strings.TrimSpace(v)
	}
	return m, nil
}

// ruleFiles is where rule files are: beside a control plane only those that are named for it.
func (s *settings) ruleFiles() descriptors.Source {
	switch {
	case len(s.Rules) > 0 || s.ConfigType == configXDS:
		return descriptors.Source{Paths: s.Rules}
	case s.RuntimeRoot != "":
		path := filepath.Join(s.RuntimeRoot, s.RuntimeSubdirectory, s.RuntimeAppdirectory)
		return descriptors.Source{Paths: []string{path}, AnyName: s.Compat != "", DotNames: !s.IgnoreDotFiles}
	}
	return descriptors.Source{Paths: []string{"config"}}
}

// checkRulesSource reports what is wrong with the settings of where rules come from.
func (s *settings) checkRulesSource() (errs []error) {
	if s.ConfigSnapshot == snapshotRedis && s.storeKind() != storeRedis {
		errs = append(errs, errors.New("--config-snapshot=redis (CONFIG_SNAPSHOT) needs --redis or REDIS_URL; or name a file"))
	}
	if s.ConfigType != configXDS {
		if s.ConfigSnapshot != "" {
			errs = append(errs, errors.New("--config-snapshot (CONFIG_SNAPSHOT) keeps rules of a control plane; say --config-type=xds, or delete it"))
		}
		return errs
	}
	return append(errs, s.XDS.check()...)
}

func (s *xdsSettings) check() (errs []error) {
	if host, port, err := net.SplitHostPort(s.Server); err != nil || host == "" || port == "" || strings.Contains(s.Server, "/") {
		errs = append(errs, fmt.Errorf("--xds-server (CONFIG_GRPC_XDS_SERVER_URL) is %q: want host:port, and for TLS also --xds-tls", s.Server))
	}
	if s.Retry == 0 || s.BackoffFrom == 0 || s.BackoffMax == 0 {
		errs = append(errs, errors.New("--xds-retry, --xds-backoff-initial and --xds-backoff-max are waits between tries to connect, above 0"))
	}
	for name := range s.Headers {
		if strings.ContainsFunc(name, notInHeaderName) {
			errs = append(errs, fmt.Errorf("--xds-headers (CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS): %q is not the name of a header", name))
		}
	}
	if (s.ClientCert == "") != (s.ClientKey == "") {
		errs = append(errs, errors.New("--xds-tls-cert and --xds-tls-key (CONFIG_GRPC_XDS_CLIENT_TLS_CERT, _KEY): one is missing"))
	}
	if !s.TLS && (s.ClientCert != "" || s.CACert != "") {
		errs = append(errs, errors.New("--xds-tls-… (CONFIG_GRPC_XDS_…_TLS_…) are files of TLS, which is off; say --xds-tls "+
			"(CONFIG_GRPC_XDS_SERVER_USE_TLS=true), or delete them"))
	}
	return errs
}

// maxMessage is the longest message of the control plane.
func (s *xdsSettings) maxMessage() int {
	if s.MaxMessage == 0 {
		return defaultMaxMessage
	}
	return int(s.MaxMessage)
}

// options are those of a client, but for its functions.
func (s *xdsSettings) options(c *certificates) xds.Options {
	o := xds.Options{
		Server: s.Server, NodeID: s.NodeID, Metadata: s.Metadata, Headers: s.Headers,
		MaxMessage:       s.maxMessage(),
		Keepalive:        time.Duration(s.Keepalive),
		KeepaliveTimeout: keepaliveTimeout,
		Backoff: xds.Backoff{
			Initial: time.Duration(s.BackoffFrom), Connect: time.Duration(s.Retry), Max: time.Duration(s.BackoffMax),
		},
	}
	if s.TLS {
		o.TLS = &certs.Client{Authorities: c.xdsCA, Certificate: c.xds, ServerName: s.ServerName}
	}
	if s.Jitter {
		o.Backoff.Spread = float64(s.Spread)
	}
	return o
}
