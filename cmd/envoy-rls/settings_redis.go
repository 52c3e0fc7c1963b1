package main

import (
	"fmt"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/certs"
	"github.com/envoy-rls/envoy-rls/pkg/redisstore"
)

func (s *settings) redisOptions() redisstore.Options {
	return redisstore.Options{
		Address:         s.Redis,
		Kind:            redisstore.Kind(s.RedisType),
		SocketType:      string(s.RedisSocketType),
		Auth:            s.RedisAuth,
		AuthFile:        s.RedisAuthFile,
		SentinelAuth:    s.RedisSentinelAuth,
		SentinelFile:    s.RedisSentinelAuthFile,
		TLS:             s.RedisTLS.options(),
		Prefix:          s.KeyPrefix,
		Timeout:         time.Duration(s.StoreTimeout),
		PoolSize:        int(s.RedisPoolSize),
		ConnMaxLifetime: time.Duration(s.RedisConnMaxLifetime),
		InFlight:        int(s.RedisInFlight),
		HashTags:        int(s.RedisHashTags),
	}
}

// checkRedis reports what is wrong with the settings of Redis.
func (s *settings) checkRedis() (errs []error) {
	if s.storeKind() != storeRedis || s.Redis == "" {
		return nil
	}
	if err := s.redisOptions().Validate(); err != nil {
		errs = append(errs, fmt.Errorf("--redis (REDIS_URL): %w", err))
	}
	if s.RedisPerSecond {
		if err := s.perSecondOptions().Validate(); err != nil {
			errs = append(errs, fmt.Errorf("--redis-per-second-url (REDIS_PERSECOND_URL): %w", err))
		}
	}
	return errs
}

// redisTLS secures connections to Redis.
type redisTLS struct {
	TLS        bool   `name:"tls" env:"TLS" help:"Use TLS, whatever the address says."`
	CACert     string `name:"tls-ca" env:"TLS_CACERT" placeholder:"FILE" help:"Certificates to trust beside the system's. Files of TLS are read for every connection."`
	ClientCert string `name:"tls-cert" env:"TLS_CLIENT_CERT" placeholder:"FILE" help:"This client's certificate."`
	ClientKey  string `name:"tls-key" env:"TLS_CLIENT_KEY" placeholder:"FILE" help:"Its key."`
	ServerName string `name:"tls-server-name" env:"TLS_SERVER_NAME" placeholder:"NAME" help:"The name that Redis's certificate must have. Default: its host."`
	SkipName   bool   `name:"tls-skip-name" env:"TLS_SKIP_HOSTNAME_VERIFICATION" help:"Trust a certificate for whatever name."`
}

func (t *redisTLS) options() redisstore.TLS {
	o := redisstore.TLS{On: t.TLS, SkipNameCheck: t.SkipName, Client: certs.Client{ServerName: t.ServerName}}
	if t.CACert != "" {
		o.Authorities = certs.NewAuthorities(t.CACert, func(time.Time, error) {})
	}
	if t.ClientCert != "" {
		o.Certificate = certs.NewPair(t.ClientCert, t.ClientKey, func(time.Time, error) {})
	}
	return o
}

// redisPerSecond is a Redis of its own for limits of less than a minute.
type redisPerSecond struct {
	URL          string     `env:"URL" default:"${per_second_url}" placeholder:"URL" help:"As --redis."`
	Type         redisKind  `env:"TYPE" placeholder:"KIND" help:"As --redis-type."`
	SocketType   socketType `env:"SOCKET_TYPE" placeholder:"KIND" help:"As --redis-socket-type."`
	Auth         string     `env:"AUTH" placeholder:"USER:PASSWORD" help:"As --redis-auth."`
	AuthFile     string     `env:"AUTH_FILE" placeholder:"FILE" help:"As --redis-auth-file."`
	SentinelAuth string     `env:"SENTINEL_AUTH" placeholder:"USER:PASSWORD" help:"As --redis-sentinel-auth."`
	PoolSize     count      `env:"POOL_SIZE" default:"0" placeholder:"N" help:"As --redis-pool-size."`
	SentinelFile string     `name:"sentinel-auth-file" env:"SENTINEL_AUTH_FILE" placeholder:"FILE" help:"As --redis-sentinel-auth-file."`
	TLS          bool       `env:"TLS" help:"As --redis-tls, with the same files."`
}

// perSecondOptions are the main Redis's, but for what is its own.
func (s *settings) perSecondOptions() redisstore.Options {
	o, p := s.redisOptions(), &s.RedisPerSecondServer
	o.Address, o.Kind, o.SocketType = p.URL, redisstore.Kind(p.Type), string(p.SocketType)
	o.Auth, o.AuthFile, o.SentinelAuth, o.SentinelFile = p.Auth, p.AuthFile, p.SentinelAuth, p.SentinelFile
	o.PoolSize, o.TLS.On = int(p.PoolSize), p.TLS
	return o
}
