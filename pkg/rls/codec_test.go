package rls

import (
	"math"
	"testing"
	"unicode/utf8"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
)

// message is r in the generated code's type.
func (r *request) message() *ratelimit.RateLimitRequest {
	m := &ratelimit.RateLimitRequest{Domain: r.domain, HitsAddend: r.hitsAddend}
	for i := range r.descriptors {
		sent := &r.descriptors[i]
		d := &common.RateLimitDescriptor{IsNegativeHits: sent.negative}
		for _, e := range r.entries[sent.first:sent.end] {
			d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: e.Key, Value: e.Value})
		}
		if sent.ownHits {
			d.HitsAddend = wrapperspb.UInt64(sent.hits)
		}
		if sent.limited {
			d.Limit = sent.limit.message()
		}
		m.Descriptors = append(m.Descriptors, d)
	}
	return m
}

func wireSeeds(f *testing.F) {
	f.Helper()
	for _, m := range []*ratelimit.RateLimitRequest{
		{},
		{Domain: "d", HitsAddend: math.MaxUint32, Descriptors: []*common.RateLimitDescriptor{
			{},
			{Entries: []*common.RateLimitDescriptor_Entry{{Key: "k", Value: "v"}, {}, {Value: "ä"}}, IsNegativeHits: true},
			{HitsAddend: wrapperspb.UInt64(math.MaxUint64), Limit: &common.RateLimitDescriptor_RateLimitOverride{
				RequestsPerUnit: 7, Unit: typev3.RateLimitUnit(-1), UnitMultiplier: wrapperspb.UInt32(0)}},
		}},
	} {
		wire, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(wire)
	}
	f.Add([]byte("\x0a\x01\xff"))                                             // not UTF-8
	f.Add([]byte("\x12\x0d\x1a\x02\x08\x05\x1a\x00\x12\x02\x08\x01\x12\x00")) // a message in parts
	f.Add([]byte("\x08\x01\x13\x14\x22\x00"))                                 // kinds that are not the field's
}

// FuzzUnmarshal holds the codec against the generated code.
func FuzzUnmarshal(f *testing.F) {
	wireSeeds(f)
	f.Fuzz(func(t *testing.T, wire []byte) {
		want := &ratelimit.RateLimitRequest{}
		stockErr := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(wire, want)
		r := request{wire: wire}
		err := r.unmarshal()
		if (err == nil) != (stockErr == nil) {
			t.Fatalf("the error is %v, the generated code's %v", err, stockErr)
		}
		if err == nil && !proto.Equal(r.message(), want) {
			t.Fatalf("\n got %v\nwant %v", r.message(), want)
		}
	})
}

// FuzzMarshal holds what is written against what the generated code reads.
func FuzzMarshal(f *testing.F) {
	f.Add("a name", uint8(2), uint32(15), "Retry-After", "4")
	f.Add("", uint8(0), uint32(0), "", "")
	f.Fuzz(func(t *testing.T, name string, unit uint8, multiplier uint32, header, value string) {
		if !utf8.ValidString(name) || !utf8.ValidString(header) || !utf8.ValidString(value) {
			return // which no rule file has
		}
		c := &call{}
		start := c.response.open(answerStatus)
		c.currentLimit(&descriptors.Limit{Name: name, Unit: descriptors.Unit(unit), Multiplier: multiplier})
		c.response.close(start)
		c.header(header, value)
		got := &ratelimit.RateLimitResponse{}
		if err := proto.Unmarshal(c.response, got); err != nil {
			t.Fatal(err)
		}
		limit := got.GetStatuses()[0].GetCurrentLimit()
		if limit.GetName() != name || limit.GetUnit() != ratelimit.RateLimitResponse_RateLimit_Unit(unit) ||
			multiplier > 1 && limit.GetUnitMultiplier().GetValue() != multiplier {
			t.Errorf("the limit is %v", limit)
		}
		if header != "" && (got.GetResponseHeadersToAdd()[0].GetKey() != header || got.GetResponseHeadersToAdd()[0].GetValue() != value) {
			t.Errorf("the headers are %v", got.GetResponseHeadersToAdd())
		}
	})
}
