package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"strconv"
	"strings"
)

// grpcListener is how gRPC listens, beside host and port.
type grpcListener struct {
	UDS       string   `name:"uds" env:"GRPC_UDS" placeholder:"PATH" help:"gRPC listens on this unix socket instead. One that a crash has left gives way."`
	UDSMode   fileMode `name:"uds-mode" env:"GRPC_UDS_MODE" default:"0660" help:"Who may connect to it, by its permissions."`
	TLS       bool     `name:"tls" env:"GRPC_SERVER_USE_TLS" help:"gRPC speaks TLS. Its files are read again when they change."`
	Cert      string   `name:"tls-cert" env:"GRPC_SERVER_TLS_CERT" placeholder:"FILE" help:"Its certificate, with those between it and its authority."`
	Key       string   `name:"tls-key" env:"GRPC_SERVER_TLS_KEY" placeholder:"FILE" help:"Its key."`
	ClientCA  string   `name:"tls-client-ca" env:"GRPC_CLIENT_TLS_CACERT" placeholder:"FILE" help:"Clients need a certificate of these authorities, and of no others."`
	ClientSAN []string `name:"tls-client-san" env:"GRPC_CLIENT_TLS_SAN" placeholder:"NAME" help:"And for one of these names: DNS names, IP addresses, or URIs such as spiffe://cluster.local/ns/a/sa/envoy."`
}

// check reports what is wrong, but for what is in the files.
func (g *grpcListener) check() (errs []error) {
	if !g.TLS {
		return nil
	}
	if g.Cert == "" || g.Key == "" {
		errs = append(errs, errors.New("--grpc-tls (GRPC_SERVER_USE_TLS) needs --grpc-tls-cert (GRPC_SERVER_TLS_CERT) and "+
			"--grpc-tls-key (GRPC_SERVER_TLS_KEY)"))
	}
	const san = "--grpc-tls-client-san (GRPC_CLIENT_TLS_SAN)"
	if len(g.ClientSAN) > 0 && g.ClientCA == "" {
		errs = append(errs, errors.New(san+" needs --grpc-tls-client-ca (GRPC_CLIENT_TLS_CACERT): without it clients "+
			"are not asked for a certificate"))
	}
	for _, name := range g.ClientSAN {
		if !isSAN(name) {
			errs = append(errs, fmt.Errorf("%s: %q is not a DNS name, an IP address, or a URI such as spiffe://cluster.local/ns/a/sa/envoy", san, name))
		}
	}
	return errs
}

// isSAN tells whether a certificate can be for name at all.
func isSAN(name string) bool {
	if strings.Contains(name, "://") {
		u, err := url.Parse(name)
		return err == nil && u.Host != "" && u.String() == name
	}
	return name != "" && !strings.ContainsAny(name, " \t/@")
}

// fileMode is the permissions of a file.
type fileMode fs.FileMode

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *fileMode) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 8, 32)
	if err != nil || n > 0o777 {
		return errors.New("want permissions in octal, such as 0660")
	}
	*m = fileMode(n)
	return nil
}
