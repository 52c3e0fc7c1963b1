package rls

import (
	"google.golang.org/protobuf/encoding/protowire"
)

// response is a RateLimitResponse that is being written, as envoy/service/ratelimit/v3/rls.proto has it.
type response []byte

// varint writes a field unless it is 0, as proto3 has it.
func (r *response) varint(number protowire.Number, v uint64) {
	if v != 0 {
		*r = protowire.AppendVarint(protowire.AppendTag(*r, number, protowire.VarintType), v)
	}
}

// text writes a field unless it is empty.
func (r *response) text(number protowire.Number, s string) {
	if s != "" {
		*r = protowire.AppendString(protowire.AppendTag(*r, number, protowire.BytesType), s)
	}
}

// open begins a message in a field, which close ends.
func (r *response) open(number protowire.Number) (start int) {
	*r = append(protowire.AppendTag(*r, number, protowire.BytesType), 0) // room for a short length
	return len(*r)
}

// close writes the length of the message that began at start before it.
func (r *response) close(start int) {
	size := len(*r) - start
	if size < 1<<7 {
		(*r)[start-1] = byte(size)
		return
	}
	var length [10]byte
	encoded := protowire.AppendVarint(length[:0], uint64(size))
	*r = append(*r, encoded[1:]...)
	copy((*r)[start-1+len(encoded):], (*r)[start:start+size])
	copy((*r)[start-1:], encoded)
}
