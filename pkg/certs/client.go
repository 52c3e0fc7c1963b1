package certs

import (
	"crypto/tls"
	"fmt"
)

// Client says how a client secures its connections. The zero value trusts the system's authorities.
type Client struct {
	// Authorities are trusted beside the system's; nil is none.
	Authorities *Authorities
	// Certificate is the client's own; nil is none.
	Certificate *Pair
	// ServerName is the name that servers' certificates must have; "" is the host of each.
	ServerName string
}

// Config is for one connection, to a host: with what the files hold now.
func (c *Client) Config(host string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host}
	if c.ServerName != "" {
		config.ServerName = c.ServerName
	}
	if c.Authorities != nil {
		var err error
		if config.RootCAs, err = c.Authorities.PoolWithSystem(); err != nil {
			return nil, fmt.Errorf("reading the CA: %w", err)
		}
	}
	if c.Certificate != nil {
		certificate, err := c.Certificate.Certificate()
		if err != nil {
			return nil, fmt.Errorf("reading the client's certificate: %w", err)
		}
		config.Certificates = []tls.Certificate{*certificate}
	}
	return config, nil
}
