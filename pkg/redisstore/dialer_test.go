package redisstore

import (
	"context"
	"errors"
	"testing"

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
		return errors.Is(dial(dead.Addr), errManyDials)
	})
	for range dialsAtOnce {
		if err := dial(alive.Addr); err != nil {
			t.Fatalf("another server can't be reached: %v", err)
		}
	}
}
