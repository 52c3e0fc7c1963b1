package denycache_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/denycache"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// open admits all that has room for anything, and takes no time for it.
type open struct{}

func (open) Decide(_ context.Context, b *limiter.Batch) error {
	for i := range b.Hits {
		d := &b.Decisions[i]
		*d = limiter.Decision{State: limiter.Decided, Allowed: b.Hits[i].Limit.Requests > 0, Charged: true}
		if !d.Allowed {
			d.RetryAfter = time.Hour
		}
	}
	b.Allowed = b.Verdict()
	return nil
}

const counters = 1000

// benchmark has all goroutines decide requests of some hits each, under a limit, on one counter or on many, before a
// cache that remembers some other counters.
type benchmark struct {
	store    limiter.Store
	limit    *limiter.Limit
	hits     int
	counters int
	others   int
}

func (c *benchmark) batch(counter int) *limiter.Batch {
	b := &limiter.Batch{Hits: make([]limiter.Hit, c.hits), Decisions: make([]limiter.Decision, c.hits)}
	for i := range b.Hits {
		b.Hits[i] = limiter.Hit{
			Key:   fmt.Sprintf("4:shop7:api_key=%d:12345678/%s%d", counter, c.limit.Algorithm, i),
			Limit: c.limit, Cost: 1, Charge: limiter.Together, Group: uint16(i),
		}
	}
	return b
}

func (c *benchmark) run(b *testing.B) {
	for i := range c.others {
		other := batchOf(limiter.Hit{Key: fmt.Sprint("other", i), Limit: &limiter.Limit{Period: time.Hour}, Cost: 1, Charge: limiter.Together})
		_ = c.store.Decide(context.Background(), other)
	}
	var first atomic.Int64
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		batches := make([]*limiter.Batch, c.counters)
		for i := range batches {
			batches[i] = c.batch(i)
		}
		for i := int(first.Add(counters / 3)); pb.Next(); i++ {
			_ = c.store.Decide(context.Background(), batches[i%len(batches)])
		}
	})
}

func BenchmarkDecide(b *testing.B) {
	cache := func() limiter.Store { return denycache.New(open{}, denycache.Options{MaxAge: time.Hour}) }
	none := &limiter.Limit{Period: time.Hour}
	much := &limiter.Limit{Requests: 10, Period: time.Hour}
	bucket := &limiter.Limit{Algorithm: limiter.TokenBucket, Requests: 10, Burst: 10, Period: time.Hour}
	for _, c := range []struct {
		name string
		of   benchmark
	}{
		{"without a cache", benchmark{open{}, much, 1, counters, 0}},
		{"denied from memory", benchmark{cache(), none, 1, counters, 0}},
		{"denied from memory, one counter", benchmark{cache(), none, 1, 1, 0}},
		{"denied from memory, four hits", benchmark{cache(), none, 4, counters, 0}},
		{"asked, nothing remembered", benchmark{cache(), much, 1, counters, 0}},
		{"asked, much remembered", benchmark{cache(), much, 1, counters, 20_000}},
		{"asked, four hits, much remembered", benchmark{cache(), much, 4, counters, 20_000}},
		{"asked, a charged bucket", benchmark{cache(), bucket, 1, counters, 0}},
	} {
		b.Run(c.name, c.of.run)
	}
}
