package rls

import (
	"context"
	"fmt"
	"runtime/debug"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
)

// Register serves s on g, which must have been made with Codec: grpc.ForceServerCodecV2(rls.Codec{}). The
// messages that interceptors see on the way are not those of the generated code.
func Register(g grpc.ServiceRegistrar, s *Service) {
	desc := ratelimit.RateLimitService_ServiceDesc
	handler := func(_ any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
		return s.handle(ctx, decode, intercept)
	}
	desc.Methods = []grpc.MethodDesc{{MethodName: "ShouldRateLimit", Handler: handler}}
	g.RegisterService(&desc, s)
}

// handle is ShouldRateLimit over gRPC. Codec releases the call that it answers with.
func (s *Service) handle(
	ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor,
) (answer any, err error) {
	defer func() {
		if r := recover(); r != nil { // one bad request must not end all others
			s.events.Panicked(r, debug.Stack())
			answer, err = nil, status.Error(codes.Internal, "internal error")
		}
	}()
	c := s.newCall()
	c.overGRPC = true
	if err := decode(c); err != nil {
		c.release()
		return nil, err
	}
	if intercept == nil {
		return s.serve(ctx, c)
	}
	info := &grpc.UnaryServerInfo{Server: s, FullMethod: ratelimit.RateLimitService_ShouldRateLimit_FullMethodName}
	return intercept(ctx, c, info, s.serve)
}

func (s *Service) serve(ctx context.Context, req any) (any, error) {
	c, ok := req.(*call)
	if !ok {
		return nil, status.Errorf(codes.Internal, "an interceptor replaced the request by a %T", req)
	}
	if err := s.answer(ctx, c); err != nil {
		c.release()
		return nil, err
	}
	return c, nil
}

// Codec is gRPC's codec for protobuf, with a quicker way for the messages of a Service.
type Codec struct{}

// Name implements encoding.CodecV2.
func (Codec) Name() string { return proto.Name }

// frame is an encoded answer in one piece of memory, which gRPC may keep.
type frame struct {
	list  [1]mem.Buffer
	bytes mem.SliceBuffer
	short [96]byte
}

// Marshal implements encoding.CodecV2.
func (Codec) Marshal(v any) (mem.BufferSlice, error) {
	c, ok := v.(*call)
	if !ok {
		return stock().Marshal(v)
	}
	f := &frame{}
	f.bytes = append(f.short[:0], c.response...)
	f.list[0] = &f.bytes
	c.release()
	return f.list[:], nil
}

// Unmarshal implements encoding.CodecV2.
func (Codec) Unmarshal(data mem.BufferSlice, v any) error {
	c, ok := v.(*call)
	if !ok {
		return stock().Unmarshal(data, v)
	}
	for _, b := range data {
		c.request.wire = append(c.request.wire, b.ReadOnlyData()...)
	}
	if err := c.request.unmarshal(); err != nil {
		return fmt.Errorf("not a RateLimitRequest: %w", err)
	}
	return nil
}

func stock() encoding.CodecV2 { return encoding.GetCodecV2(proto.Name) }
