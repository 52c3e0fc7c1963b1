package rls

import (
	"context"
	"fmt"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/memstore"
	"github.com/envoy-rls/envoy-rls/pkg/unmatched"
)

const speedRules = `
domain: d
keys: {api_key: {hash: true}}
descriptors:
  - {key: user, rate_limit: {unit: hour, requests_per_unit: 1000000000}}
  - {key: api_key, rate_limit: {unit: hour, requests_per_unit: 1000000000}}
  - {key: none, rate_limit: {unit: hour, requests_per_unit: 0}}
  - key: tenant
    rate_limits:
      - {unit: second, requests_per_unit: 1000000000, algorithm: sliding_window}
      - {unit: day, requests_per_unit: 1000000000, algorithm: token_bucket}
    descriptors:
      - {key: path, rate_limit: {unit: minute, requests_per_unit: 1000000000}}
`

// speedCases are requests by what they meet.
var speedCases = []struct {
	name        string
	descriptors func(i int) [][2]string // pairs of one descriptor each; a key with a dot is nested
}{
	{"nothing matches", func(int) [][2]string { return [][2]string{{"stranger", "x"}} }},
	{"hot", func(int) [][2]string { return [][2]string{{"user", "ann"}} }},
	{"over", func(int) [][2]string { return [][2]string{{"none", "ann"}} }},
	{"spread", func(i int) [][2]string { return [][2]string{{"user", fmt.Sprint("user-", i)}} }},
	{"three", func(i int) [][2]string {
		return [][2]string{{"user", fmt.Sprint("user-", i)}, {"tenant", "t"}, {"none-such", "x"}}
	}},
	{"hashed", func(i int) [][2]string { return [][2]string{{"api_key", fmt.Sprintf("key-%036d", i)}} }},
}

func speedRequests(tb testing.TB, of func(i int) [][2]string) [][]byte {
	tb.Helper()
	list := make([][]byte, 1000)
	for i := range list {
		req := &ratelimit.RateLimitRequest{Domain: "d"}
		for _, d := range of(i) {
			req.Descriptors = append(req.Descriptors, &common.RateLimitDescriptor{
				Entries: []*common.RateLimitDescriptor_Entry{{Key: d[0], Value: d[1]}}})
		}
		wire, err := proto.Marshal(req)
		if err != nil {
			tb.Fatal(err)
		}
		list[i] = wire
	}
	return list
}

func speedService(tb testing.TB, o descriptors.Options) *Service {
	tb.Helper()
	rules, problems := descriptors.Compile([]descriptors.File{{Name: "r.yaml", Data: []byte(speedRules)}}, o)
	if len(problems) > 0 {
		tb.Fatal(problems)
	}
	missed := unmatched.New(0)
	s := New(memstore.New(memstore.Options{}), Options{
		Headers: HeaderOptions{RetryAfter: "Retry-After", Rule: "RateLimit-Rule"},
		Events:  Events{Unmatched: func(u Unmatched) { missed.Note(u.Sent, u.Entries, u.At) }},
	})
	s.SetRules(rules)
	return s
}

// BenchmarkCall is all that the service does with a request, but for what gRPC does.
func BenchmarkCall(b *testing.B) {
	for _, c := range speedCases {
		b.Run(c.name, func(b *testing.B) {
			s, requests := speedService(b, descriptors.Options{HashKey: descriptors.NewHashKey([]byte("secret"))}), speedRequests(b, c.descriptors)
			ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
			defer cancel()
			next := 0
			decode := func(v any) error {
				next++
				return Codec{}.Unmarshal(mem.BufferSlice{mem.SliceBuffer(requests[next%len(requests)])}, v)
			}
			b.ReportAllocs()
			for b.Loop() {
				answer, err := s.handle(ctx, decode, nil)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := (Codec{}).Marshal(answer); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
