package main

import (
	"fmt"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// The numbers of RateLimitResponse's fields that the load reads.
const (
	fieldOverallCode protowire.Number = 1
	fieldStatuses    protowire.Number = 2
)

// answer is what the load wants to know of a response.
type answer struct {
	code     ratelimit.RateLimitResponse_Code
	statuses int
}

// decode reads an encoded RateLimitResponse and skips what the load does not count, which costs no allocation.
func (a *answer) decode(wire []byte) error {
	*a = answer{}
	for len(wire) > 0 {
		number, kind, size := protowire.ConsumeField(wire)
		if size < 0 {
			return fmt.Errorf("decode an answer: %w", protowire.ParseError(size))
		}
		switch {
		case number == fieldOverallCode && kind == protowire.VarintType:
			_, _, tag := protowire.ConsumeTag(wire)
			code, _ := protowire.ConsumeVarint(wire[tag:])
			a.code = ratelimit.RateLimitResponse_Code(code)
		case number == fieldStatuses:
			a.statuses++
		}
		wire = wire[size:]
	}
	return nil
}

// codec is a gRPC codec between a *[]byte that holds an encoded request and an *answer.
type codec struct{}

// Marshal hands the request out as it is; grpc only reads it.
func (codec) Marshal(message any) (mem.BufferSlice, error) {
	request, ok := message.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("encode a request: got %T", message)
	}
	return mem.BufferSlice{mem.SliceBuffer(*request)}, nil
}

func (codec) Unmarshal(wire mem.BufferSlice, message any) error {
	into, ok := message.(*answer)
	if !ok {
		return fmt.Errorf("decode an answer: into %T", message)
	}
	buffer := wire.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buffer.Free()
	return into.decode(buffer.ReadOnlyData())
}

// Name is empty, which makes the content type plain application/grpc, as Envoy sends it.
func (codec) Name() string { return "" }
