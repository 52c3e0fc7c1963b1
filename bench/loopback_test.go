package main

import (
	"strings"
	"testing"
)

func TestOnlyLoopbackTargetsAreAccepted(t *testing.T) {
	for _, target := range []string{"127.0.0.1:8081", "127.9.9.9:1", "[::1]:8081", "localhost:8081"} {
		if err := checkLoopback(target); err != nil {
			t.Errorf("%s: %v", target, err)
		}
	}
	for _, target := range []string{
		"10.0.0.1:8081", "0.0.0.0:8081", ":8081", "[::]:8081", "example.com:8081", "localhost.example.com:8081",
		"127.0.0.1.example.com:8081", "[fe80::1%lo]:8081", "128.0.0.1:8081",
	} {
		if err := checkLoopback(target); err == nil || !strings.Contains(err.Error(), "not a loopback address") {
			t.Errorf("%s: %v", target, err)
		}
	}
	for _, target := range []string{"", "127.0.0.1", "unix:///run/rls.sock"} {
		if err := checkLoopback(target); err == nil {
			t.Errorf("%s: no error", target)
		}
	}
}

func TestNothingIsSentToATargetElsewhere(t *testing.T) {
	const elsewhere = "192.0.2.1:8081"
	commands := map[string]func() error{
		"load":    (&Load{Target: elsewhere, Pressure: gentle()}).Validate,
		"compare": func() error { return new(Extra).UnmarshalText([]byte("other=" + elsewhere + "@1")) },
		"trial": func() error {
			_, err := Trial{Target: elsewhere}.Run(t.Context())
			return err
		},
	}
	for name, check := range commands {
		if err := check(); err == nil || !strings.Contains(err.Error(), "not a loopback address") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
