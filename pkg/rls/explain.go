package rls

import (
	"context"
	"fmt"
	"slices"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// Explanation says how a request is matched and what its answer would be now. It is the caller's. Times are in
// seconds.
type Explanation struct {
	Domain string `json:"domain"`
	// At is where the rules name the domain, as file:line, or "" if none do.
	At          string                `json:"at,omitempty"`
	Descriptors []ExplainedDescriptor `json:"descriptors"`
	// Answer is OK, OVER_LIMIT, error if the caller's failure mode would decide, or "" if it needs counts that are not
	// known. A request without limits is OK.
	Answer string `json:"answer"`
	// Places is in how many places the request's counters are decided, each at an instant of its own; 0 if there are
	// none.
	Places int `json:"places"`
	// Failure is why the store could not be asked, or "".
	Failure string `json:"failure,omitempty"`
}

// ExplainedDescriptor is one descriptor of a request.
type ExplainedDescriptor struct {
	Levels []descriptors.Level `json:"levels"`
	// Rule is the path of the rule that matches, or "", and Why why none does.
	Rule string `json:"rule,omitempty"`
	Why  string `json:"why,omitempty"`
	// Override is the override in the rule's place, or "".
	Override string `json:"override,omitempty"`
	// Words are what the rule says, if it has no limits to count.
	Words string `json:"words,omitempty"`
	// Cost is what the request would charge; 0 looks and a negative one gives back.
	Cost int64 `json:"cost"`
	// Overridden tells that the request brings the limit along.
	Overridden bool `json:"overridden,omitempty"`
	// Overflow tells that the values are too many for counters of their own, and share one.
	Overflow bool             `json:"overflow,omitempty"`
	Limits   []ExplainedLimit `json:"limits,omitempty"`
}

// ExplainedLimit is one limit of a descriptor.
type ExplainedLimit struct {
	Path  string `json:"path"`
	Words string `json:"words"`
	// Skipped says why the limit is not asked, or is "".
	Skipped string `json:"skipped,omitempty"`
	// Counter is the counter's key in the store.
	Counter string `json:"counter,omitempty"`
	// Decided says who told the count: store, local (this replica, by its share of the limit, while the store is away),
	// or nobody: then a failure policy answers if there is a store, and nothing behind it means anything.
	Decided   string `json:"decided,omitempty"`
	OnFailure string `json:"on_store_failure,omitempty"`
	// Most is how many hits an unused counter admits, and Left how many it admits now; negative is in debt.
	Most int64 `json:"most"`
	Left int64 `json:"left"`
	// ResetAfter is as limiter.Decision has it.
	ResetAfter float64 `json:"reset_after,omitempty"`
	// Allowed is the limit's own verdict on the cost, LeftAfter what would be left, and RetryAfter how long a denied
	// caller would be told to wait: exactly where nothing is left or the window is fixed, and the request gives nothing back
	// to the counter, else at most.
	Allowed    bool    `json:"allowed"`
	LeftAfter  int64   `json:"left_after"`
	RetryAfter float64 `json:"retry_after,omitempty"`
}

// Who told a count.
const (
	DecidedByStore  = "store"
	DecidedLocally  = "local"
	DecidedByNobody = "nobody"
)

// maxExplainedAtOnce bounds the descriptors that Explain takes: words cost more than decisions.
const maxExplainedAtOnce = 64

// Explain says what ShouldRateLimit would answer, and why. It charges nothing, changes nothing and tells no events: it
// looks at counters at a cost of 0, and computes from their room what the request's own cost would come to; of a
// give-back under a sliding window, that is the most. A Service over a nil Store explains without counts. The error is ShouldRateLimit's for a request that is wrong and while there
// are no rules; a store that fails is no error.
func (s *Service) Explain(ctx context.Context, req *ratelimit.RateLimitRequest) (*Explanation, error) {
	quiet := &Service{store: s.store, options: s.options, events: Events{}.filled()}
	c := &call{service: quiet, rules: s.rules.Load(), looks: &descriptors.Look{}, began: s.options.Now()}
	var err error
	if c.request.wire, err = proto.Marshal(req); err != nil {
		return nil, s.errorf(codes.InvalidArgument, "%v", err)
	}
	if err := c.request.unmarshal(); err != nil {
		return nil, s.errorf(codes.InvalidArgument, "%v", err)
	}
	if err := s.check(&c.request, c.rules); err != nil {
		return nil, err
	}
	if len(c.request.descriptors) > maxExplainedAtOnce {
		return nil, s.errorf(codes.InvalidArgument, "at most %d descriptors are explained at once; ask in parts", maxExplainedAtOnce)
	}
	c.domain = c.rules.Domain(c.request.domain)
	sent := slices.Clone(c.request.entries)
	c.match()
	c.replace()
	c.makeHits()
	if len(c.batch.Hits) > MaxHits {
		return nil, s.tooMany()
	}
	x := &Explanation{Domain: c.request.domain, Answer: "OK"}
	if c.domain != nil {
		x.At = c.domain.At()
	}
	looked := c.look(ctx, x)
	c.foresee(looked, x)
	for i := range c.descriptors {
		d := &c.request.descriptors[i]
		x.Descriptors = append(x.Descriptors, c.explained(&c.descriptors[i], sent[d.first:d.end], looked))
	}
	return x, nil
}

// look asks the store for the room of each counter. What was not found out is Undecided.
func (c *call) look(ctx context.Context, x *Explanation) []limiter.Decision {
	b := limiter.Batch{
		Flow: c.batch.Flow, Hits: slices.Clone(c.batch.Hits), Decisions: make([]limiter.Decision, len(c.batch.Hits)),
	}
	places := map[string]bool{}
	for i := range b.Hits {
		h := &b.Hits[i]
		place, _ := c.service.locate(h)
		places[place] = true
		// Hits that deny nothing are each answered for, whatever is known of the others.
		h.Cost, h.Group, h.Role, h.Charge, h.PassFull = 0, uint16(i), limiter.Shadow, limiter.Together, false
	}
	x.Places = len(places)
	if c.service.store == nil || len(b.Hits) == 0 {
		return b.Decisions
	}
	if err := c.service.store.Decide(ctx, &b); err != nil {
		x.Failure = err.Error()
	}
	return b.Decisions
}

// locate is Options.Locate, or what stands for it.
func (s *Service) locate(h *limiter.Hit) (place, key string) {
	if s.options.Locate == nil {
		return "", h.Key
	}
	return s.options.Locate(h)
}

// foresee decides the request on counters that have the room that was looked up, by the loop that decides all others.
func (c *call) foresee(looked []limiter.Decision, x *Explanation) {
	n := len(looked)
	if n == 0 {
		return
	}
	if c.service.store == nil {
		x.Answer = ""
		return
	}
	counters := map[string]*limiter.Row{}
	rows := make([]*limiter.Row, n)
	now := c.began.UnixMicro()
	for i := range looked {
		h, d := &c.batch.Hits[i], &looked[i]
		if rows[i] = counters[h.Key]; rows[i] != nil {
			continue
		}
		row := limiter.Row{}
		if d.Known() {
			now = d.At
			row = limiter.Seen(h.Limit, d.Room, d.At)
		}
		counters[h.Key], rows[i] = &row, &row
	}
	c.batch.Decisions = make([]limiter.Decision, n)
	limiter.Decide(&c.batch, rows, now)
	for i := range looked {
		if c.batch.Decisions[i].State = looked[i].State; looked[i].State == limiter.Undecided {
			c.batch.Decisions[i] = limiter.Decision{}
		}
	}
	switch err := c.degrade(""); {
	case err != nil:
		x.Answer = "error"
	case c.refused():
		x.Answer = "OVER_LIMIT"
	}
}

func (c *call) explained(d *descriptor, sent []descriptors.Entry, looked []limiter.Decision) ExplainedDescriptor {
	how := c.rules.Explain(c.request.domain, sent)
	x := ExplainedDescriptor{Levels: how.Levels, Why: how.Why, Cost: d.cost, Overridden: d.overridden}
	if d.rule != nil {
		x.Rule, x.Override = d.rule.Path, d.rule.Override
		x.Overflow = d.overflows
		if len(d.limits) == 0 {
			x.Words = d.rule.Words()[0]
		}
	}
	asked := d.first
	for i := range d.limits {
		l := &d.limits[i]
		e := ExplainedLimit{Path: l.Path, Words: l.Words()}
		if d.rule != nil {
			e.Words = d.rule.LimitWords(l)
		}
		switch {
		case c.exempt:
			e.Skipped = "another descriptor exempts the request"
		case asked == d.end || c.hitLimits[asked] != l:
			e.Skipped = fmt.Sprintf("another limit of the request replaces %s", l.Name)
		default:
			c.foreseen(&e, asked, looked)
			asked++
		}
		x.Limits = append(x.Limits, e)
	}
	return x
}

// foreseen says what was found and foreseen of hit i.
func (c *call) foreseen(e *ExplainedLimit, i int, looked []limiter.Decision) {
	h, now := &c.batch.Hits[i], &looked[i]
	_, e.Counter = c.service.locate(h)
	e.OnFailure, e.Most, e.Decided = h.OnFailure.String(), int64(h.Limit.Requests), DecidedByNobody
	if h.Limit.Algorithm.HasBurst() {
		e.Most = int64(h.Limit.Burst)
	}
	if !now.Known() {
		return
	}
	e.Decided = DecidedByStore
	if now.State == limiter.Locally {
		e.Decided = DecidedLocally
	}
	after := &c.batch.Decisions[i]
	e.Left, e.ResetAfter = now.Room, now.ResetAfter.Seconds()
	e.Allowed, e.LeftAfter = after.Allowed, after.Room
	switch {
	case after.Allowed:
	case !now.Allowed && h.Need() <= 1: // the store knows better when
		e.RetryAfter = now.RetryAfter.Seconds()
	default:
		e.RetryAfter = max(after.RetryAfter, time.Microsecond).Seconds()
	}
}
