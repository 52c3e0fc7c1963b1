package main

import (
	"fmt"
	"net"
	"net/netip"
)

// checkLoopback refuses a host:port that may be another machine's. No name but localhost is looked at, so that no
// answer of a resolver can send load elsewhere.
func checkLoopback(target string) error {
	host, _, err := net.SplitHostPort(target)
	if err != nil {
		return fmt.Errorf("target %q: %w", target, err)
	}
	if host == "localhost" {
		return nil
	}
	address, err := netip.ParseAddr(host)
	if err != nil || !address.IsLoopback() {
		return fmt.Errorf("target %q is not a loopback address: load goes to 127.0.0.0/8, ::1 or localhost only", target)
	}
	return nil
}
