package main

import (
	"fmt"
	"net"

	"github.com/envoy-rls/envoy-rls/pkg/admin"
)

// adminListener is whom admin lets in.
type adminListener struct {
	TokenFile string `env:"ADMIN_TOKEN_FILE" placeholder:"FILE" help:"Who has one of its tokens may set overrides, reset counters and change the log's level: a token a line, or a name and a token. Without it nobody may."`
}

func (a *adminListener) check() []error {
	if _, err := admin.NewGuard(a.TokenFile, true); err != nil {
		return []error{fmt.Errorf("--admin-token-file (ADMIN_TOKEN_FILE): %w", err)}
	}
	return nil
}

// isLoopback tells whether only this machine reaches a host.
func isLoopback(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}
