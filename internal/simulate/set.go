package simulate

import (
	"context"
	"slices"
	"strings"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/memstore"
	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

// Options are those of a Set.
type Options struct {
	// Domain is the one that is asked.
	Domain string
	// Service is how requests are answered; its Events and Now are not used.
	Service rls.Options
	// Limit is one that each descriptor brings along, or nil.
	Limit *common.RateLimitDescriptor_RateLimitOverride
	// MemoryLimit is that of the counters; 0 is memstore.DefaultMemoryLimit.
	MemoryLimit int
}

// Set is rules that are asked. It is for one goroutine.
type Set struct {
	options Options
	domain  *descriptors.Domain // nil: no rules name it
	each    map[string][]string // by a limit's path, the keys whose values are counted apart
	store   *memstore.Store
	service handler
	now     int64

	message   *ratelimit.RateLimitRequest
	wire      []byte
	answered  rls.Answered
	entries   []descriptors.Entry
	decided   []rls.Decided
	overflown int64
}

// NewSet returns a Set without counters. No other one that is in use may have the same rules: they remember the values
// of a period, for max_values.
func NewSet(rules *descriptors.Ruleset, o Options) *Set {
	s := &Set{
		options: o, domain: rules.Domain(o.Domain), each: map[string][]string{},
		message: &ratelimit.RateLimitRequest{Domain: o.Domain},
	}
	clock := func() time.Time { return time.UnixMicro(s.now) }
	s.store = memstore.New(memstore.Options{Now: clock, MemoryLimit: o.MemoryLimit})
	o.Service.Now = clock
	o.Service.Events = rls.Events{
		Answered: func(a rls.Answered) { s.answered = a },
		Decided:  func(d rls.Decided) { s.decided = append(s.decided, d) },
		Overflow: func(string, string) { s.overflown++ },
	}
	service := rls.New(s.store, o.Service)
	service.SetRules(rules)
	rls.Register(&s.service, service)
	if s.domain != nil {
		for _, r := range s.domain.Rules() {
			for i := range r.Limits {
				s.each[r.Limits[i].Path] = r.Each
			}
		}
	}
	return s
}

// Verdict is the answer to a request.
type Verdict struct {
	// Refused tells that it is over limit.
	Refused bool
	// Decided is what became of each limit; good until the next request.
	Decided []rls.Decided
	// Err is why there is no answer, as a gRPC status.
	Err error
}

// Ask has a request answered when it comes, or now if that is later.
func (s *Set) Ask(r *Request) Verdict {
	s.now = max(s.now, r.At)
	s.decided = s.decided[:0]
	s.fill(r)
	if err := s.call(); err != nil {
		return Verdict{Err: err}
	}
	return Verdict{Refused: s.answered.OverLimit, Decided: s.decided}
}

// call sends the message as gRPC does.
func (s *Set) call() error {
	var err error
	if s.wire, err = (proto.MarshalOptions{}).MarshalAppend(s.wire[:0], s.message); err != nil {
		return err
	}
	answer, err := s.service.call(func(v any) error {
		return rls.Codec{}.Unmarshal(mem.BufferSlice{mem.SliceBuffer(s.wire)}, v)
	})
	if err != nil {
		return err
	}
	_, err = rls.Codec{}.Marshal(answer)
	return err
}

// handler is what a service registers with gRPC.
type handler struct{ method grpc.MethodDesc }

// RegisterService implements grpc.ServiceRegistrar.
func (h *handler) RegisterService(desc *grpc.ServiceDesc, _ any) { h.method = desc.Methods[0] }

func (h *handler) call(decode func(any) error) (any, error) {
	return h.method.Handler(nil, context.Background(), decode, nil)
}

// fill makes the message of r, of parts of that of the one before.
func (s *Set) fill(r *Request) {
	list := s.message.Descriptors
	for len(list) < len(r.Descriptors) {
		list = append(list, &common.RateLimitDescriptor{Limit: s.options.Limit, HitsAddend: &wrapperspb.UInt64Value{}})
	}
	s.message.Descriptors = list[:len(r.Descriptors)]
	for i, entries := range r.Descriptors {
		d := s.message.Descriptors[i]
		for len(d.Entries) < len(entries) {
			d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{})
		}
		d.Entries = d.Entries[:len(entries)]
		for j, e := range entries {
			d.Entries[j].Key, d.Entries[j].Value = e.Key, e.Value
		}
		d.HitsAddend.Value = 1
		if r.Costs {
			d.HitsAddend.Value = r.Cost
		}
	}
}

// Counted are the entries of a request that a limit counts apart, with the values that it counts them by. It is good
// until the next call.
func (s *Set) Counted(r *Request, d *rls.Decided) []descriptors.Entry {
	s.entries = append(s.entries[:0], r.Descriptors[d.Descriptor]...)
	if s.domain != nil {
		s.domain.Prepare(s.entries)
	}
	if strings.HasSuffix(d.Path, rls.BroughtAlong) {
		return s.entries
	}
	return slices.DeleteFunc(s.entries, func(e descriptors.Entry) bool { return !slices.Contains(s.each[d.Path], e.Key) })
}

// Forgotten is how many counters were dropped for want of memory although they counted.
func (s *Set) Forgotten() int64 {
	e := s.store.Evictions()
	return e.WithRoom + e.Denying
}
