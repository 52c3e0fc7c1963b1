package redisstore

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

func TestAFailureTellsWhereItIsCertainThatNothingWasCounted(t *testing.T) {
	r := proctest.StartRedis(t)
	admin := r.Client()
	for _, c := range []struct {
		reason  string
		begin   []any
		end     []any
		certain bool
	}{
		{"readonly", []any{"REPLICAOF", "127.0.0.1", "1"}, []any{"REPLICAOF", "NO", "ONE"}, true},
		{"oom", []any{"CONFIG", "SET", "maxmemory", "1"}, []any{"CONFIG", "SET", "maxmemory", "0"}, true},
		{"noreplicas", []any{"CONFIG", "SET", "min-replicas-to-write", "1"}, []any{"CONFIG", "SET", "min-replicas-to-write", "0"}, true},
		{"noperm", []any{"ACL", "SETUSER", "default", "-evalsha"}, []any{"ACL", "SETUSER", "default", "+evalsha"}, true},
		{"timeout", []any{"CLIENT", "PAUSE", "100000", "WRITE"}, []any{"CLIENT", "UNPAUSE"}, false},
	} {
		s := open(t, r, "p:")
		decide(t, s, "b", 0)
		if c.reason == "timeout" {
			s.timeout = time.Second
		}
		if err := admin.Do(context.Background(), c.begin...).Err(); err != nil {
			t.Fatal(err)
		}
		err := s.Decide(context.Background(), batch("a", 1))
		if err := admin.Do(context.Background(), c.end...).Err(); err != nil {
			t.Fatal(err)
		}
		var f *Failure
		if !errors.As(err, &f) || f.Reason != c.reason || errors.Is(err, limiter.ErrNotAsked) != c.certain {
			t.Errorf("after %v the error is %v", c.begin, err)
		}
	}
	s := open(t, r, "p:")
	r.Kill()
	if err := s.Decide(context.Background(), batch("a", 1)); !errors.Is(err, limiter.ErrNotAsked) {
		t.Errorf("where there is no connection the error is %v", err)
	}
}

func TestALossOfAllCountersIsToldOfOnceWhoeverFindsIt(t *testing.T) {
	ctx := context.Background()
	r := proctest.StartRedis(t)
	s := open(t, r, "p:")
	lost := func(want bool) {
		t.Helper()
		if got, err := s.Mark(ctx); err != nil || got != want {
			t.Errorf("lost is %t, %v", got, err)
		}
	}
	check := func() {
		t.Helper()
		if err := s.Check(ctx); err != nil {
			t.Fatal(err)
		}
	}
	flush := func() {
		t.Helper()
		if err := r.Client().FlushAll(ctx).Err(); err != nil {
			t.Fatal(err)
		}
	}
	check()
	check()
	lost(false)
	flush()
	lost(true)
	lost(false)
	flush()
	check()
	lost(true)
	lost(false)
}
