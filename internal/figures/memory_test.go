package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
	"github.com/envoy-rls/envoy-rls/pkg/memstore"
	"github.com/envoy-rls/envoy-rls/pkg/redisstore"
)

// keyLength is that of the keys whose memory the document tells.
const keyLength = 56

// states are what a counter can hold, by their names in the document.
var states = []struct {
	name  string
	limit limiter.Limit
	hits  int64
}{
	{"`fixed_window`", limiter.Limit{Algorithm: limiter.FixedWindow, Requests: 100, Period: time.Hour}, 1},
	{"`sliding_window`", limiter.Limit{Algorithm: limiter.SlidingWindow, Requests: 100, Period: time.Hour}, 1},
	{"`token_bucket`, `leaky_bucket`", limiter.Limit{Algorithm: limiter.TokenBucket, Requests: 100, Burst: 100, Period: time.Hour}, 1},
	{"`sliding_log`, 1 hit", limiter.Limit{Algorithm: limiter.SlidingLog, Requests: 100, Period: time.Hour}, 1},
	{"`sliding_log`, 10 hits", limiter.Limit{Algorithm: limiter.SlidingLog, Requests: 100, Period: time.Hour}, 10},
	{"`sliding_log`, 100 hits", limiter.Limit{Algorithm: limiter.SlidingLog, Requests: 100, Period: time.Hour}, 100},
}

// fill charges a counter the hits of a state, one by one.
func fill(t testing.TB, s limiter.Store, key string, state int) {
	t.Helper()
	l := &states[state].limit
	b := &limiter.Batch{Hits: []limiter.Hit{{Key: key, Limit: l, Cost: 1}}, Decisions: make([]limiter.Decision, 1)}
	for range states[state].hits {
		if err := s.Decide(context.Background(), b); err != nil || !b.Allowed {
			t.Fatalf("allowed %t: %v", b.Allowed, err)
		}
	}
}

// TestTheDocumentTellsWhatACounterTakesInRedis measures again, and allows a fifth for another server's ways.
func TestTheDocumentTellsWhatACounterTakesInRedis(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(proctest.Root(), document))
	if err != nil {
		t.Fatal(err)
	}
	_, memory, _ := bytes.Cut(page, []byte("| counter | Redis |"))
	r := proctest.StartRedis(t)
	s, err := redisstore.Open(redisstore.Options{Address: r.URL(), Timeout: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	ctx, admin := context.Background(), r.Client()
	key := fmt.Sprintf("%0*d", keyLength, 7)
	for i, state := range states {
		if err := admin.FlushDB(ctx).Err(); err != nil {
			t.Fatal(err)
		}
		fill(t, s, "counter", i)
		// A key of another length takes another amount: the counter moves to one of the documented length.
		if err := admin.Rename(ctx, admin.RandomKey(ctx).Val(), key).Err(); err != nil {
			t.Fatal(err)
		}
		got, err := admin.MemoryUsage(ctx, key, 0).Result()
		if err != nil {
			t.Fatal(err)
		}
		m := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(state.name) + ` \| (\d+) `).FindSubmatch(memory)
		if m == nil {
			t.Fatalf("%s has no line for %s; in Redis it takes %d bytes", document, state.name, got)
		}
		want, err := strconv.ParseInt(string(m[1]), 10, 64)
		if err != nil || got*5 > want*6 || got*5 < want*4 {
			t.Errorf("%s takes %d bytes in Redis; the document says %s (%v)", state.name, got, m[1], err)
		}
	}
}

// BenchmarkMemoryOfACounter is how the document's numbers for the memory store were found.
func BenchmarkMemoryOfACounter(b *testing.B) {
	const counters = 1_000_000
	for i, state := range states {
		b.Run(state.name, func(b *testing.B) {
			n := counters / int(state.hits)
			for range b.N {
				before := heap()
				s := memstore.New(memstore.Options{MemoryLimit: 4 << 30})
				for c := range n {
					fill(b, s, fmt.Sprintf("%0*d", keyLength, c), i)
				}
				b.ReportMetric(float64(heap()-before)/float64(n), "B/counter")
				if s.Len() != n {
					b.Fatalf("%d counters of %d", s.Len(), n)
				}
			}
		})
	}
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
