package redisstore

import (
	"context"
	"errors"
	"os"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// lane is a limiter.Store for counters that one script call can decide together: all that there are, or in a cluster
// those of one tag.
type lane struct {
	*server
	name     string
	prefix   string // of its own keys, among them a counter to try with
	combiner *combiner
	breaker  *breaker
}

// allTags is the tag of a lane for all of them.
const allTags = -1

// newLane makes a lane for all tags, or for the one of a number.
func newLane(s *server, tag int, changed func(lane string, state BreakerState, cause error)) *lane {
	prefixOf := s.prefixOf
	if tag != allTags {
		prefixOf = func(*limiter.Hit) string { return s.prefixes[tag] }
	}
	l := &lane{server: s, name: strconv.Itoa(max(tag, 0)), prefix: s.prefixes[max(tag, 0)]}
	l.combiner = newCombiner(l.noteCall, l.callsAtOnce, prefixOf)
	l.breaker = newBreaker(l.probe, func(state BreakerState, cause error) {
		if changed != nil {
			changed(l.name, state, cause)
		}
	})
	return l
}

// Decide implements limiter.Store, as Store has it.
func (l *lane) Decide(ctx context.Context, b *limiter.Batch) error {
	var end func(requests int, err error)
	if l.trace != nil {
		end = l.trace(ctx, l.name)
	}
	shared, err := l.decide(ctx, b)
	if end != nil {
		end(shared, err)
	}
	return err
}

// decide also returns how many requests shared the call, or 0.
func (l *lane) decide(ctx context.Context, b *limiter.Batch) (shared int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, undecided(b, err)
	}
	if l.breaker.current() != BreakerClosed {
		return 0, undecided(b, ErrBreakerOpen)
	}
	if shared, err = l.combiner.decide(ctx, b, l.budget(ctx)); err != nil {
		return 0, undecided(b, err)
	}
	return shared, nil
}

func undecided(b *limiter.Batch, err error) error {
	clear(b.Decisions)
	return failure(err)
}

// budget is how long a call may take.
func (l *lane) budget(ctx context.Context) time.Duration {
	if l.timeout > 0 {
		return l.timeout
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		return maxTimeout
	}
	return min(max(time.Until(deadline)/2, minTimeout), maxTimeout)
}

// maxInFlight is the most calls at once that the round trip can ask for.
const maxInFlight = 4

// callsAtOnce is how many calls may be under way. Over a short way one is best, since what arrives meanwhile
// shares the next; over a long one, requests would wait for most of a round trip.
func (l *lane) callsAtOnce() int {
	if l.inFlight > 0 {
		return l.inFlight
	}
	return min(1+int(l.combiner.roundTrip.Load()/int64(time.Millisecond)), maxInFlight)
}

// noteCall runs a call and has the breaker know how it ended. A reply that came after the call's time is late.
func (l *lane) noteCall(ctx context.Context, c *call) error {
	err := l.runCall(ctx, c)
	switch {
	case err == nil:
		l.breaker.note(ctx.Err(), time.Now())
	case !errors.Is(err, context.Canceled) && !errors.Is(err, errTryAgain):
		l.breaker.note(err, time.Now())
	}
	return err
}

// probe asks twice, first whether the server is there, which may take a connection, then to count.
func (l *lane) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	l.nodes.reload(ctx)
	if l.nodes == nil { // a cluster's PING goes to any of its nodes, and tells nothing
		if err := l.client.Ping(ctx).Err(); err != nil {
			return err
		}
	}
	_, err := l.combiner.decide(ctx, l.trial(), max(l.timeout, maxTimeout))
	return err
}

// trial is a batch that writes a counter of the lane which is gone a second later.
func (l *lane) trial() *limiter.Batch {
	return &limiter.Batch{
		Hits: []limiter.Hit{{
			Key: "check", Cost: 1, Charge: limiter.ChargeDenied,
			Limit: &limiter.Limit{Requests: 1, Period: time.Second},
		}},
		Decisions: make([]limiter.Decision, 1),
	}
}

// runCall runs the script for a call and decides its requests by the reply.
func (l *lane) runCall(ctx context.Context, c *call) error {
	began := time.Now()
	text, err := l.run(ctx, c)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return context.DeadlineExceeded
	}
	if err != nil {
		return err
	}
	took := time.Since(began)
	roundTrip := &l.combiner.roundTrip
	roundTrip.Store(min(took.Nanoseconds(), roundTrip.Load()+took.Nanoseconds()/64))
	if l.called != nil {
		l.called(c.requests(), began.Sub(c.came), took)
	}
	r, err := parseReply(text)
	if err != nil {
		return err
	}
	return c.decide(r)
}

// maxSends bounds how often a call is sent: by its script's hash, to where it is redirected, to a new master, by its text.
const maxSends = 5

// run runs the script by its hash, and by its text if the server has forgotten it. It is sent again only where the
// reply proves that nothing was counted.
func (l *lane) run(ctx context.Context, c *call) (string, error) {
	var to sender = l.client
	name, script := "EVALSHA", &l.hash
	now, jitter := l.now(), l.jitter()
	moved := false // whether it was sent again for READONLY
	for sends := 1; ; sends++ {
		cmd := redis.NewCmd(ctx, c.command(name, script, now, jitter)...)
		err := to.Process(ctx, cmd)
		if err == nil {
			return cmd.Text()
		}
		next := l.nodes.redirect(ctx, err)
		switch {
		case sends == maxSends:
			return "", err
		case redis.HasErrorPrefix(err, "NOSCRIPT"):
			name, script = "EVAL", &l.text
		case next != nil:
			to = next
		case redis.HasErrorPrefix(err, "READONLY") && !moved:
			moved = true // that connection is closed, and the next one finds a master that is new behind the same name
		case redis.HasErrorPrefix(err, "TRYAGAIN"):
			return "", errTryAgain
		default:
			return "", err
		}
	}
}
