package main

import (
	"fmt"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/certs"
	"github.com/envoy-rls/envoy-rls/pkg/redisstore"
)

func (s *settings) redisOptions(c *certificates) redisstore.Options {
	return redisstore.Options{
		Address:         s.Redis,
		Kind:            redisstore.Kind(s.RedisType),
		SocketType:      string(s.RedisSocketType),
		Auth:            s.RedisAuth,
		AuthFile:        s.RedisAuthFile,
		SentinelAuth:    s.RedisSentinelAuth,
		SentinelFile:    s.RedisSentinelAuthFile,
		TLS:             s.RedisTLS.options(c),
		Prefix:          s.KeyPrefix,
		NamedWindows:    s.replacedNames(),
		Timeout:         time.Duration(s.StoreTimeout),
		PoolSize:        int(s.RedisPoolSize),
		ConnMaxLifetime: time.Duration(s.RedisConnMaxLifetime),
		InFlight:        int(s.RedisInFlight),
		HashTags:        int(s.RedisHashTags),
		DialTimeout:     time.Duration(s.RedisStart.DialTimeout),
	}
}

// checkRedis reports what is wrong with the settings of Redis.
func (s *settings) checkRedis() (errs []error) {
	if s.storeKind() != storeRedis || s.Redis == "" {
		return nil
	}
	c := s.certificates(unwatched)
	if err := s.redisOptions(c).Validate(); err != nil {
		errs = append(errs, fmt.Errorf("--redis (REDIS_URL): %w", err))
	}
	if s.RedisPerSecond {
		if err := s.perSecondOptions(c).Validate(); err != nil {
			errs = append(errs, fmt.Errorf("--redis-per-second-url (REDIS_PERSECOND_URL): %w", err))
		}
	}
	return errs
}

// redisStart is about coming to have connections to Redis, and about having none.
type redisStart struct {
	DialTimeout duration `name:"redis-dial-timeout" env:"REDIS_TIMEOUT" default:"${dial_timeout}" help:"Longest time to connect."`
	MaxElapsed  duration `name:"redis-startup-timeout" env:"REDIS_STARTUP_MAX_ELAPSED_TIME" default:"0s" help:"Exit with an error if Redis is not ready this long after the start; 0 is never."`
	ReadyNeeds  bool     `name:"ready-needs-redis" env:"REDIS_HEALTH_CHECK_ACTIVE_CONNECTION" help:"Be not ready, and fail /healthcheck, while Redis can't be asked: an outage takes all replicas out."`
}

// redisTLS secures connections to Redis.
type redisTLS struct {
	TLS        bool   `name:"tls" env:"TLS" help:"Use TLS, whatever the address says."`
	CACert     string `name:"tls-ca" env:"TLS_CACERT" placeholder:"FILE" help:"Certificates to trust beside the system's. Files of TLS are read again when they change."`
	ClientCert string `name:"tls-cert" env:"TLS_CLIENT_CERT" placeholder:"FILE" help:"This client's certificate."`
	ClientKey  string `name:"tls-key" env:"TLS_CLIENT_KEY" placeholder:"FILE" help:"Its key."`
	ServerName string `name:"tls-server-name" env:"TLS_SERVER_NAME" placeholder:"NAME" help:"The name that Redis's certificate must have. Default: its host."`
	SkipName   bool   `name:"tls-skip-name" env:"TLS_SKIP_HOSTNAME_VERIFICATION" help:"Trust a certificate for whatever name."`
}

func (t *redisTLS) options(c *certificates) redisstore.TLS {
	return redisstore.TLS{
		On: t.TLS, Client: certs.Client{Authorities: c.redisCA, Certificate: c.redis, ServerName: t.ServerName}, SkipNameCheck: t.SkipName,
	}
}

// redisPerSecond is a Redis of its own for limits of less than a minute.
type redisPerSecond struct {
	URL          string     `env:"URL" default:"${per_second_url}" placeholder:"URL" help:"As --redis."`
	Type         redisKind  `env:"TYPE" placeholder:"KIND" help:"As --redis-type."`
	SocketType   socketType `env:"SOCKET_TYPE" default:"${redis_socket_type}" placeholder:"KIND" help:"As --redis-socket-type."`
	Auth         string     `env:"AUTH" placeholder:"USER:PASSWORD" help:"As --redis-auth."`
	AuthFile     string     `env:"AUTH_FILE" placeholder:"FILE" help:"As --redis-auth-file."`
	SentinelAuth string     `env:"SENTINEL_AUTH" placeholder:"USER:PASSWORD" help:"As --redis-sentinel-auth."`
	PoolSize     count      `env:"POOL_SIZE" default:"0" placeholder:"N" help:"As --redis-pool-size."`
	SentinelFile string     `name:"sentinel-auth-file" env:"SENTINEL_AUTH_FILE" placeholder:"FILE" help:"As --redis-sentinel-auth-file."`
	TLS          bool       `env:"TLS" help:"As --redis-tls, with the same files."`
	DialTimeout  duration   `env:"TIMEOUT" default:"${dial_timeout}" help:"As --redis-dial-timeout."`
}

// perSecondOptions are the main Redis's, but for what is its own.
func (s *settings) perSecondOptions(c *certificates) redisstore.Options {
	o, p := s.redisOptions(c), &s.RedisPerSecondServer
	o.Address, o.Kind, o.SocketType = p.URL, redisstore.Kind(p.Type), string(p.SocketType)
	o.Auth, o.AuthFile, o.SentinelAuth, o.SentinelFile = p.Auth, p.AuthFile, p.SentinelAuth, p.SentinelFile
	o.PoolSize, o.TLS.On = int(p.PoolSize), p.TLS
	o.DialTimeout = time.Duration(p.DialTimeout)
	return o
}
