package main

import (
	"crypto/tls"
	"fmt"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/envoy-rls/envoy-rls/pkg/certs"
)

// clientTLS is how call secures its connection.
type clientTLS struct {
	TLS        bool   `name:"tls" help:"Use TLS, which each of the following does, too."`
	CA         string `name:"ca" placeholder:"FILE" help:"Certificates to trust beside the system's."`
	Cert       string `name:"cert" placeholder:"FILE" help:"This client's certificate."`
	Key        string `name:"key" placeholder:"FILE" help:"Its key."`
	ServerName string `name:"server-name" placeholder:"NAME" help:"The name that the service's certificate must have. Default: its host."`
}

func (t *clientTLS) credentials() (credentials.TransportCredentials, error) {
	if *t == (clientTLS{}) {
		return insecure.NewCredentials(), nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CA != "" {
		var err error
		if c.RootCAs, err = certs.NewAuthorities(t.CA, nil).PoolWithSystem(); err != nil {
			return nil, fmt.Errorf("--ca: %w", err)
		}
	}
	if t.Cert != "" || t.Key != "" {
		pair, err := certs.NewPair(t.Cert, t.Key, nil).Certificate()
		if err != nil {
			return nil, fmt.Errorf("--cert: %w", err)
		}
		c.Certificates = []tls.Certificate{*pair}
	}
	return credentials.NewTLS(c), nil
}
