package top_test

import (
	"context"
	"fmt"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/envoy-rls/envoy-rls/pkg/memstore"
	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

// registered is the handler of a service's method, as gRPC gets it.
type registered struct {
	desc    *grpc.ServiceDesc
	service any
}

// RegisterService implements grpc.ServiceRegistrar.
func (r *registered) RegisterService(desc *grpc.ServiceDesc, service any) {
	*r = registered{desc, service}
}

// BenchmarkCall is all that the service does with a request, but for what gRPC does, with and without somebody who
// looks at it.
func BenchmarkCall(b *testing.B) {
	for _, c := range []struct {
		name string
		of   func(i int) string
	}{
		{"hot", func(int) string { return "user=ann" }},
		{"spread", func(i int) string { return fmt.Sprint("user=", i) }},
		{"over", func(int) string { return "none=ann" }},
		{"over spread", func(i int) string { return fmt.Sprint("none=", i) }},
	} {
		b.Run(c.name+"/alone", func(b *testing.B) { benchmark(b, c.of, nil) })
		b.Run(c.name+"/watched", func(b *testing.B) {
			w := start(b)
			benchmark(b, c.of, func(_ context.Context, o rls.Outcome) { w.top.Observe(o) })
		})
	}
}

func benchmark(b *testing.B, of func(i int) string, observe func(context.Context, rls.Outcome)) {
	s := rls.New(memstore.New(memstore.Options{}), rls.Options{Observe: observe})
	s.SetRules(compile(b))
	var r registered
	rls.Register(&r, s)
	wires := make([][]byte, 1000)
	for i := range wires {
		wire, err := proto.Marshal(request(of(i)))
		if err != nil {
			b.Fatal(err)
		}
		wires[i] = wire
	}
	next := 0
	decode := func(v any) error {
		next++
		return rls.Codec{}.Unmarshal(mem.BufferSlice{mem.SliceBuffer(wires[next%len(wires)])}, v)
	}
	b.ReportAllocs()
	for b.Loop() {
		answer, err := r.desc.Methods[0].Handler(r.service, context.Background(), decode, nil)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := (rls.Codec{}).Marshal(answer); err != nil {
			b.Fatal(err)
		}
	}
}
