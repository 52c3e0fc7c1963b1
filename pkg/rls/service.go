package rls

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

const (
	// MaxHits is the most hits that one request may come to.
	MaxHits = 256
	// MaxDomain is the length of the longest domain, in bytes.
	MaxDomain = 1024
)

// Options are a Service's settings.
type Options struct {
	// Defaults are for limits that a request brings along and no rule stands behind.
	Defaults descriptors.Defaults
	// Headers says which response headers an answer carries.
	Headers HeaderOptions
	// DynamicMetadata adds the request, and the metadata of the rules it passed, to the answer.
	DynamicMetadata bool
	// VerdictMetadata adds to the answer's dynamic metadata denied_by, the limit that refused, by the name that the rule
	// header has, and would_deny, a list of those that are only tried out and would have. DynamicMetadata does, too, unless
	// Compat is set.
	VerdictMetadata bool
	// NearRatio is from which part of a limit on hits are said to be near it; 0 is 0.8.
	NearRatio float32
	// Compat keeps what users of envoyproxy/ratelimit may have come to rely on: a look passes at exactly
	// the limit, a limit in a request takes the place of its whole rule and is ignored in unknown domains,
	// shadow rules show their limit in statuses, and errors have code Unknown.
	Compat bool
	// Shadow answers OK to a request that is over its limit, and to one that the store fails to decide. All else is as
	// without it: statuses keep their codes, and what is counted is counted. Unless Compat is set, clients are not told
	// of limits.
	Shadow bool
	// Quota makes a quota of each limit that is enforced: a request is over its limit only if all of its limits are.
	Quota bool
	// ReplacedNames is as in descriptors.Options, for limits that requests bring along.
	ReplacedNames bool
	// Events are told what happens.
	Events Events
	// Trace, if it is not nil, is told of each call before it is looked at, on the call's own goroutine. It returns the
	// context that the store gets, and what is told how the call ended, or nil if nobody wants to know.
	Trace func(ctx context.Context) (context.Context, func(Traced))
	// Locate says where the store has the counter of a hit: its key there, and the place that decides it, which is the
	// same for counters that are decided at one instant. It is for Explain; nil is for a store that is one place, and
	// has counters under their names.
	Locate func(h *limiter.Hit) (place, key string)
	// Observe, if it is not nil, is told of each call that has ended, on the call's own goroutine, many at once, with the
	// context of the call, or the one that Trace made. It must return soon.
	Observe func(ctx context.Context, o Outcome)
	// Now is the clock by which calls take their time, and by which periods end for the bound on a rule's
	// distinct values; nil is time.Now. It must be safe for concurrent use. What is counted goes by the store's
	// clock.
	Now func() time.Time
}

// Service implements RateLimitService over a Store. Any number of goroutines may use it.
type Service struct {
	ratelimit.UnimplementedRateLimitServiceServer

	rules   atomic.Pointer[descriptors.Ruleset]
	store   limiter.Store
	options Options
	events  Events
	calls   sync.Pool // of *call

	inFlight atomic.Int64
}

// InFlight is how many calls are being answered.
func (s *Service) InFlight() int64 { return s.inFlight.Load() }

// New returns a Service without rules: until SetRules, every call fails.
func New(store limiter.Store, o Options) *Service {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Service{
		store: store, options: o, events: o.Events.filled(), calls: sync.Pool{New: func() any { return new(call) }},
	}
}

// SetRules puts rules in force, for calls that begin from now on.
func (s *Service) SetRules(rules *descriptors.Ruleset) { s.rules.Store(rules) }

// Rules returns the rules in force, or nil.
func (s *Service) Rules() *descriptors.Ruleset { return s.rules.Load() }

// ShouldRateLimit implements RateLimitService. Its errors carry gRPC codes: InvalidArgument for a request
// that is wrong (Unknown if Compat is set), Unavailable while there are no rules, and when the store fails
// and a rule wants the caller to decide. Register's way is the quicker one.
func (s *Service) ShouldRateLimit(ctx context.Context, req *ratelimit.RateLimitRequest) (*ratelimit.RateLimitResponse, error) {
	c := s.newCall()
	defer c.release()
	var err error
	if c.request.wire, err = (proto.MarshalOptions{}).MarshalAppend(c.request.wire, req); err != nil {
		return nil, s.errorf(codes.InvalidArgument, "%v", err)
	}
	if err := c.request.unmarshal(); err != nil {
		return nil, s.errorf(codes.Internal, "reading the request: %v", err)
	}
	if err := s.answer(ctx, c); err != nil {
		return nil, err
	}
	answer := &ratelimit.RateLimitResponse{}
	if err := proto.Unmarshal(c.response, answer); err != nil {
		return nil, s.errorf(codes.Internal, "reading the answer: %v", err)
	}
	return answer, nil
}

// answer answers the request of c, and tells the events of it. The error is a gRPC status.
func (s *Service) answer(ctx context.Context, c *call) error {
	s.inFlight.Add(1)
	defer s.inFlight.Add(-1)
	c.began = s.options.Now()
	ended := Answered{GRPC: c.overGRPC, Code: codes.Internal} // unless it gets as far as its end
	if s.options.Trace != nil {
		traced, end := s.options.Trace(ctx)
		if end != nil {
			defer func() { end(c.traced(&ended)) }()
		}
		ctx = traced
	}
	if deadline, ok := ctx.Deadline(); ok {
		ended.Granted = deadline.Sub(c.began)
	}
	err := c.run(ctx, s.rules.Load())
	ended.Domain, ended.Code = c.label(), status.Code(err)
	if err == nil && !c.batch.Allowed {
		ended.OverLimit, ended.Shadowed = c.refused(), !c.refused()
	}
	now := s.options.Now()
	ended.Took, ended.Late = now.Sub(c.began), ctx.Err() != nil
	s.events.Answered(ended)
	if s.options.Observe != nil {
		s.options.Observe(ctx, Outcome{Answered: ended, Ended: now, call: c})
	}
	return err
}

// check tells what is wrong with a request before it is looked at; the texts are those of the service that
// this one replaces.
func (s *Service) check(req *request, rules *descriptors.Ruleset) error {
	switch {
	case rules == nil:
		return s.errorf(codes.Unavailable, "no rate limit configuration loaded")
	case req.domain == "":
		return s.errorf(codes.InvalidArgument, "rate limit domain must not be empty")
	case len(req.domain) > MaxDomain:
		return s.errorf(codes.InvalidArgument, "the rate limit domain has %d bytes; at most %d are allowed", len(req.domain), MaxDomain)
	case len(req.descriptors) == 0:
		return s.errorf(codes.InvalidArgument, "rate limit descriptor list must not be empty")
	}
	return nil
}

func (s *Service) tooMany() error {
	return s.errorf(codes.InvalidArgument, "the request comes to more than %d hits; ask in parts", MaxHits)
}

func (s *Service) errorf(code codes.Code, format string, args ...any) error {
	if s.options.Compat {
		code = codes.Unknown
	}
	return status.Errorf(code, format, args...)
}
