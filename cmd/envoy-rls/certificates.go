package main

import (
	"context"
	"fmt"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/certs"
)

// certificates are those that the service uses; nil where no setting names any.
type certificates struct {
	server   *certs.Pair
	clientCA *certs.Authorities
	redis    *certs.Pair
	redisCA  *certs.Authorities
	xds      *certs.Pair
	xdsCA    *certs.Authorities

	byName map[string]expiring // all of them, as metrics name them
}

type expiring interface{ Expires() time.Time }

// certificates opens the files that settings name. Report makes what is told of those of a name.
func (s *settings) certificates(report func(which string) certs.Report) *certificates {
	c := &certificates{byName: map[string]expiring{}}
	pair := func(which, cert, key string) *certs.Pair {
		if cert == "" && key == "" {
			return nil
		}
		p := certs.NewPair(cert, key, report(which))
		c.byName[which] = p
		return p
	}
	authorities := func(which, file string) *certs.Authorities {
		if file == "" {
			return nil
		}
		a := certs.NewAuthorities(file, report(which))
		c.byName[which] = a
		return a
	}
	if g := &s.GRPC; g.TLS {
		c.server, c.clientCA = pair("server", g.Cert, g.Key), authorities("client_ca", g.ClientCA)
	}
	if t := &s.RedisTLS; s.storeKind() == storeRedis {
		c.redis, c.redisCA = pair("redis_client", t.ClientCert, t.ClientKey), authorities("redis_ca", t.CACert)
	}
	if x := &s.XDS; s.ConfigType == configXDS && x.TLS {
		c.xds, c.xdsCA = pair("xds_client", x.ClientCert, x.ClientKey), authorities("xds_ca", x.CACert)
	}
	return c
}

// unwatched makes nothing be told of certificates.
func unwatched(string) certs.Report { return nil }

// checkCertificates reports what is wrong with the files that gRPC needs at the start.
func (s *settings) checkCertificates() (errs []error) {
	c := s.certificates(unwatched)
	if c.server != nil && s.GRPC.Cert != "" && s.GRPC.Key != "" {
		if _, err := c.server.Certificate(); err != nil {
			errs = append(errs, fmt.Errorf("--grpc-tls-cert (GRPC_SERVER_TLS_CERT): %w", err))
		}
	}
	if c.clientCA != nil {
		if _, err := c.clientCA.Pool(); err != nil {
			errs = append(errs, fmt.Errorf("--grpc-tls-client-ca (GRPC_CLIENT_TLS_CACERT): %w", err))
		}
	}
	return errs
}

// openCertificates opens the service's certificates, whose changes are logged, and whose ends are metrics.
func (srv *server) openCertificates() *certificates {
	c := srv.settings.certificates(func(which string) certs.Report {
		return func(expires time.Time, wrong error) {
			switch {
			case wrong != nil:
				srv.log.Error("certificate can't be used, the last good one stays", "which", which, "error", wrong)
			case expires.Before(time.Now()):
				srv.log.Warn("certificate loaded, and it has expired", "which", which, "expired", expires.Format(time.RFC3339))
			default:
				srv.log.Info("certificate loaded", "which", which, "expires", expires.Format(time.RFC3339))
			}
		}
	})
	gauge := srv.metrics.GaugeFunc("certificate_expiry_timestamp_seconds",
		"When the first of the certificates in use expires; 0: there is none.", "which")
	for which, e := range c.byName {
		gauge(which, func() float64 {
			if t := e.Expires(); !t.IsZero() {
				return float64(t.Unix())
			}
			return 0
		})
	}
	return c
}

// certificateInterval is how often files are looked at although nobody connects, so that the log tells soon of a bad one.
const certificateInterval = 10 * time.Second

// watch looks at the files now and then, until ctx ends.
func (c *certificates) watch(ctx context.Context) {
	tick := time.NewTicker(certificateInterval)
	defer tick.Stop()
	for {
		for _, e := range c.byName {
			e.Expires()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
