package redisstore

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

var threeNamed = &limiter.Limit{Algorithm: limiter.NamedWindow, Requests: 3, Period: 24 * time.Hour}

func named(key string, cost int64, charge limiter.Charge) *limiter.Batch {
	b := batch(key, cost)
	b.Hits[0].Limit, b.Hits[0].Charge = threeNamed, charge
	return b
}

// replaced counts as envoyproxy/ratelimit does, and returns the count afterwards.
func replaced(t *testing.T, c *redis.Client, key string, hits int64) int64 {
	t.Helper()
	p := c.Pipeline()
	after := p.IncrBy(context.Background(), key, hits)
	p.Expire(context.Background(), key, 24*time.Hour+5*time.Minute)
	if _, err := p.Exec(context.Background()); err != nil {
		t.Error(err)
	}
	return after.Val()
}

func TestANamedWindowIsSharedWithWhoeverCountsByINCRBY(t *testing.T) {
	r := proctest.StartRedis(t)
	s, other := open(t, r, "p:"), r.Client()
	ctx := context.Background()
	decide := func(cost int64, charge limiter.Charge) limiter.Decision {
		b := named("shop_user_ann_1796007600", cost, charge)
		if err := s.Decide(ctx, b); err != nil {
			t.Fatal(err)
		}
		return b.Decisions[0]
	}
	const key = "p:shop_user_ann_1796007600"
	if d := decide(1, limiter.Together); d.Room != 2 {
		t.Errorf("first: %+v", d)
	}
	if n := replaced(t, other, key, 2); n != 3 {
		t.Errorf("the other service counts %d, want 3", n)
	}
	if d := decide(1, limiter.Together); d.Allowed || d.Charged {
		t.Errorf("over the limit: %+v", d)
	}
	if d := decide(1, limiter.ChargeDenied); d.Allowed || d.Room != -1 {
		t.Errorf("over the limit, and counted: %+v", d)
	}
	if d := decide(-2, limiter.Together); d.Room != 1 {
		t.Errorf("given back: %+v", d)
	}
	if n := replaced(t, other, key, 1); n != 3 {
		t.Errorf("the other service counts %d, want 3", n)
	}
	if n := other.DBSize(ctx).Val(); n != 1 {
		t.Errorf("there are %d keys, want 1", n)
	}
}

func TestNoHitOnANamedWindowIsLostBesideAnotherService(t *testing.T) {
	r := proctest.StartRedis(t)
	s, other := open(t, r, "p:"), r.Client()
	const callers, each = 16, 100
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for i := range each {
				if err := s.Decide(context.Background(), named(fmt.Sprint("w_", i%3), 1, limiter.ChargeDenied)); err != nil {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			for i := range each {
				replaced(t, other, fmt.Sprint("p:w_", i%3), 2)
			}
		})
	}
	wg.Wait()
	sum := int64(0)
	for i := range 3 {
		n, err := other.Get(context.Background(), fmt.Sprint("p:w_", i)).Int64()
		if err != nil {
			t.Error(err)
		}
		sum += n
	}
	if sum != callers*each*3 {
		t.Errorf("%d hits are counted, want %d", sum, callers*each*3)
	}
}

// TestTheTTLOfANamedWindowIsSetOnce also where the other service lost its connection between INCRBY and EXPIRE.
func TestTheTTLOfANamedWindowIsSetOnce(t *testing.T) {
	r := proctest.StartRedis(t)
	s, other := open(t, r, "p:"), r.Client()
	ctx := context.Background()
	charge := func(key string) time.Duration {
		if err := s.Decide(ctx, named(key, 1, limiter.ChargeDenied)); err != nil {
			t.Fatal(err)
		}
		return other.PTTL(ctx, "p:"+key).Val()
	}
	least, most := 24*time.Hour+5*time.Second, 24*time.Hour+21*time.Second
	if ttl := charge("new"); ttl < least || ttl > most {
		t.Errorf("a new key lives for %s", ttl)
	}
	other.IncrBy(ctx, "p:left", 1)
	if ttl := charge("left"); ttl < least || ttl > most {
		t.Errorf("a key that was left without a TTL lives for %s", ttl)
	}
	other.Set(ctx, "p:other", 1, time.Hour)
	if ttl := charge("other"); ttl > time.Hour {
		t.Errorf("a key of another TTL lives for %s", ttl)
	}
}

func TestADamagedNamedWindowIsWrittenOver(t *testing.T) {
	r := proctest.StartRedis(t)
	s, other := open(t, r, "p:"), r.Client()
	ctx := context.Background()
	for value, want := range map[string]string{
		"": "1", "x": "1", "-5": "1", "1.5": "1", "nan": "1", "inf": "1", "1:2": "1", // no counts
		"1.0": "2", "01": "2", "+1": "2", "1e0": "2", // counts that INCRBY doesn't take
		"4294967295": "4294967295", "9007199254740993": "9007199254740993", "9223372036854775807": "9223372036854775807", // full
	} {
		other.Set(ctx, "p:"+value, value, time.Hour)
		if err := s.Decide(ctx, named(value, 1, limiter.ChargeDenied)); err != nil {
			t.Errorf("%q: %v", value, err)
		}
		if got := other.Get(ctx, "p:"+value).Val(); got != want {
			t.Errorf("%q becomes %q, want %q", value, got, want)
		}
	}
	other.LPush(ctx, "p:list", 1)
	if err := s.Decide(ctx, named("list", 1, 0)); err != nil || other.Get(ctx, "p:list").Val() != "1" {
		t.Errorf("a list: %v", err)
	}
}

func TestAClusterHasNoNamedWindows(t *testing.T) {
	o := Options{Address: "redis+cluster://127.0.0.1:1", NamedWindows: true}
	if o.Validate() == nil {
		t.Error("it is no error")
	}
}
