package redisstore

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

func TestAServerThatRefusesConnectionsDoesNotHoldUpThoseToOthers(t *testing.T) {
	alive, dead := proctest.StartRedis(t), proctest.StartRedis(t)
	dead.Kill()
	d := newDialer(&target{options: &Options{}})
	dial := func(addr string) error {
		ctx, cancel := context.WithTimeout(t.Context(), maxTimeout)
		defer cancel()
		c, err := d.dial(ctx, "tcp", addr)
		if err == nil {
			err = c.Close()
		}
		return err
	}
	proctest.Eventually(t, "too many connections to the dead server were tried", func() bool {
		for range 2 * dialsAtOnce {
			if errors.Is(dial(dead.Addr), errManyDials) {
				return true
			}
		}
		return false
	})
	reached := 0
	for range dialsAtOnce {
		err := dial(alive.Addr) // a busy machine may be late
		if errors.Is(err, errManyDials) {
			t.Fatalf("another server can't be reached: %v", err)
		}
		if err == nil {
			reached++
		}
	}
	if reached == 0 {
		t.Error("another server is never reached")
	}
}

func TestAServerThatDoesNotShakeHandsIsGivenUpAfterTheDialTimeout(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }() // nobody is connected any more
	d := newDialer(&target{tls: true, options: &Options{DialTimeout: time.Millisecond}})
	var timeout net.Error
	if _, err := d.dial(t.Context(), "tcp", silent.Addr().String()); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("dialling ended with: %v", err)
	}
}
