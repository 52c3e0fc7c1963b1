package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// benchCallers is how many requests are under way at once.
const benchCallers = 64

// BenchmarkDecide measures what a decision costs this process and Redis in CPU time, on counters that admit
// everything. Beside it, in the same run, is what INCRBY and EXPIRE cost in a pipeline for each request.
func BenchmarkDecide(b *testing.B) {
	hour := func(a limiter.Algorithm) *limiter.Limit {
		l := &limiter.Limit{Algorithm: a, Requests: 1<<32 - 1, Period: time.Hour}
		if a.HasBurst() {
			l.Burst = l.Requests
		}
		return l
	}
	for _, c := range []struct {
		name  string
		limit *limiter.Limit
		keys  []int // of each hit
	}{
		{"spread", hour(limiter.FixedWindow), []int{100_000}},
		{"hot", hour(limiter.FixedWindow), []int{1}},
		{"three", hour(limiter.FixedWindow), []int{100_000, 1000, 100_000}},
		{"sliding", hour(limiter.SlidingWindow), []int{100_000}},
		{"named", hour(limiter.NamedWindow), []int{100_000}},
		{"bucket", hour(limiter.TokenBucket), []int{100_000}},
		{"log", &limiter.Limit{Algorithm: limiter.SlidingLog, Requests: 10, Period: time.Second}, []int{100_000}},
	} {
		b.Run(c.name, func(b *testing.B) { benchDecide(b, c.limit, c.keys) })
	}
	b.Run("pipeline", benchPipeline)
}

func benchDecide(b *testing.B, limit *limiter.Limit, keys []int) {
	r := proctest.StartRedis(b)
	var calls atomic.Int64
	s, err := Open(Options{Address: r.URL(), Timeout: 5 * time.Second, Called: func(int, time.Duration, time.Duration) { calls.Add(1) }})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	var seed atomic.Uint64
	measure(b, r, func(pb *testing.PB) {
		random := seed.Add(1) * 0x9E3779B97F4A7C15
		batch := &limiter.Batch{Flow: "bench", Hits: make([]limiter.Hit, len(keys)), Decisions: make([]limiter.Decision, len(keys))}
		name := make([]byte, 0, 100)
		for pb.Next() {
			name = name[:0]
			for i, n := range keys {
				random = random*6364136223846793005 + 1442695040888963407
				first := len(name)
				name = fmt.Appendf(name, "5:bench6:client%d=12:client-%05d/%s3600", i, int(random>>33)%n, limit.Algorithm)
				batch.Hits[i] = limiter.Hit{Key: string(name[first:]), Limit: limit, Cost: 1, Group: uint16(i), Charge: limiter.Together}
			}
			if err := s.Decide(context.Background(), batch); err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric(float64(b.N)/float64(calls.Load()), "requests/call")
}

func benchPipeline(b *testing.B) {
	r := proctest.StartRedis(b)
	client := redis.NewClient(&redis.Options{Addr: r.Addr, PoolSize: benchCallers})
	b.Cleanup(func() { _ = client.Close() })
	var seed atomic.Uint64
	measure(b, r, func(pb *testing.PB) {
		random := seed.Add(1) * 0x9E3779B97F4A7C15
		for pb.Next() {
			random = random*6364136223846793005 + 1442695040888963407
			key := fmt.Sprintf("5:bench6:client=12:client-%05d/fixed_window3600", int(random>>33)%100_000)
			p := client.Pipeline()
			p.IncrBy(context.Background(), key, 1)
			p.Expire(context.Background(), key, time.Hour)
			if _, err := p.Exec(context.Background()); err != nil {
				b.Error(err)
			}
		}
	})
}

// measure runs the load and reports the CPU time of both processes.
func measure(b *testing.B, r *proctest.Redis, load func(*testing.PB)) {
	b.SetParallelism(benchCallers / 2)
	b.ReportAllocs()
	theirs, ours := redisCPU(b, r), ownCPU()
	b.ResetTimer()
	b.RunParallel(load)
	b.StopTimer()
	b.ReportMetric((redisCPU(b, r)-theirs)*1e6/float64(b.N), "redis-µs/op")
	b.ReportMetric((ownCPU()-ours)*1e6/float64(b.N), "own-µs/op")
}

// redisCPU is what the server has used, in seconds.
func redisCPU(b *testing.B, r *proctest.Redis) float64 {
	b.Helper()
	info, err := r.Client().Info(context.Background(), "cpu").Result()
	if err != nil {
		b.Fatal(err)
	}
	sum := 0.0
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_sys" || name == "used_cpu_user" {
			seconds, err := strconv.ParseFloat(value, 64)
			if err != nil {
				b.Fatal(err)
			}
			sum += seconds
		}
	}
	return sum
}

func ownCPU() float64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // can't fail for oneself
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
