// Package redisstore is a limiter.Store in Redis, shared by all processes that use the same Redis and prefix.
// Every batch is decided by one run of a script, atomically, by the server's clock; batches that arrive while
// one runs share the next.
package redisstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/envoy-rls/envoy-rls/lua"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// Store is a limiter.Store. Any number of goroutines may use it. Close it when it is no longer needed.
type Store struct {
	client    *redis.Client
	hash      string   // of the script
	text      string   // of the script
	prefixes  []string // by tag
	timeout   time.Duration
	now       func() int64 // µs, or 0 for the server's clock
	jitter    func() int64 // of expiries, in millionths
	combiner  *combiner
	breaker   *breaker
	called    func(requests int, took time.Duration)
	inFlight  int          // calls at once, or 0 for what the round trip asks for
	roundTrip atomic.Int64 // ns, about the shortest of late: others waited for a processor, not for the way
}

// Open returns a Store without asking the server for anything; Check does. The error says what is wrong with
// o and holds no secret.
func Open(o Options) (*Store, error) {
	c, err := o.client()
	if err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	script, err := lua.Engine()
	if err != nil {
		return nil, fmt.Errorf("redis: reading the script: %w", err)
	}
	s := &Store{
		client:   redis.NewClient(c),
		hash:     redis.NewScript(script).Hash(),
		text:     script,
		prefixes: prefixes(o.Prefix, o.HashTags),
		timeout:  o.Timeout,
		inFlight: o.InFlight,
		called:   o.Called,
		now:      func() int64 { return 0 },
		jitter:   func() int64 { return rand.Int64N(1e6) },
	}
	s.combiner = newCombiner(s.noteCall, s.callsAtOnce, s.prefixOf)
	s.breaker = newBreaker(s.probe, o.BreakerChanged)
	return s, nil
}

// Close closes the connections. Calls under way fail.
func (s *Store) Close() error {
	s.breaker.close()
	return s.client.Close()
}

// Breaker is the state of the Store's breaker.
func (s *Store) Breaker() BreakerState { return s.breaker.current() }

// Decide implements limiter.Store. It returns within the Store's timeout and ctx, and at once while the breaker is
// open. The error is a *Failure. After one it is not known whether the batch was counted, unless it is of the kind
// that proves that nothing ran, such as limiter.ErrNotAsked.
func (s *Store) Decide(ctx context.Context, b *limiter.Batch) error {
	if err := ctx.Err(); err != nil {
		return undecided(b, err)
	}
	if s.breaker.current() != BreakerClosed {
		return undecided(b, ErrBreakerOpen)
	}
	if err := s.combiner.decide(ctx, b, s.budget(ctx)); err != nil {
		return undecided(b, err)
	}
	return nil
}

func undecided(b *limiter.Batch, err error) error {
	clear(b.Decisions)
	return failure(err)
}

// maxInFlight is the most calls at once that the round trip can ask for.
const maxInFlight = 4

// callsAtOnce is how many calls may be under way. Over a short way one is best, since what arrives meanwhile
// shares the next; over a long one, requests would wait for most of a round trip.
func (s *Store) callsAtOnce() int {
	if s.inFlight > 0 {
		return s.inFlight
	}
	return min(1+int(s.roundTrip.Load()/int64(time.Millisecond)), maxInFlight)
}

// noteCall runs a call and has the breaker know how it ended.
func (s *Store) noteCall(ctx context.Context, c *call) error {
	err := s.runCall(ctx, c)
	if !errors.Is(err, context.Canceled) {
		s.breaker.note(err, time.Now())
	}
	return err
}

// probe asks twice, first whether the server is there, which may take a connection, then to count.
func (s *Store) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if err := s.client.Ping(ctx).Err(); err != nil {
		return err
	}
	return s.combiner.decide(ctx, trial(), max(s.timeout, maxTimeout))
}

// runCall runs the script for a call and decides its requests by the reply.
func (s *Store) runCall(ctx context.Context, c *call) error {
	began := time.Now()
	text, err := s.run(ctx, c)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return context.DeadlineExceeded
	}
	if err != nil {
		return err
	}
	took := time.Since(began)
	s.roundTrip.Store(min(took.Nanoseconds(), s.roundTrip.Load()+took.Nanoseconds()/64))
	if s.called != nil {
		s.called(c.requests(), took)
	}
	r, err := parseReply(text)
	if err != nil {
		return err
	}
	return c.decide(r)
}

// budget is how long a call may take.
func (s *Store) budget(ctx context.Context) time.Duration {
	if s.timeout > 0 {
		return s.timeout
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		return maxTimeout
	}
	return min(max(time.Until(deadline)/2, minTimeout), maxTimeout)
}

// run runs the script by its hash, and by its text if the server has forgotten it: NOSCRIPT proves that
// nothing was counted.
func (s *Store) run(ctx context.Context, c *call) (string, error) {
	now, jitter := s.now(), s.jitter()
	cmd := redis.NewCmd(ctx, c.command("EVALSHA", &s.hash, now, jitter)...)
	err := s.client.Process(ctx, cmd)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		cmd = redis.NewCmd(ctx, c.command("EVAL", &s.text, now, jitter)...)
		err = s.client.Process(ctx, cmd)
	}
	if err != nil {
		return "", err
	}
	return cmd.Text()
}

// Unsupported is Check's error for a server that answers, and that can't be used.
type Unsupported struct {
	// Text says what the server refuses.
	Text string
}

// Error implements error.
func (u *Unsupported) Error() string { return u.Text }

// selfTest tries what the script needs, in ways that are known to differ between servers.
const selfTest = `
local t = redis.call('TIME')
local packed = struct.pack('<HBi8', 7, 8, -2^52)
local a, b, c = struct.unpack('<HBi8', packed)
if #packed ~= 11 or a ~= 7 or b ~= 8 or c ~= -2^52 then return 'struct' end
if string.format('%d', 2^52) ~= '4503599627370496' then return 'format' end
if #t ~= 2 then return 'TIME' end
return 'ok'`

// Check asks the server whether it can be used, and loads the script. The error is *Unsupported if the
// server answered that it can't, and any other if it didn't answer.
func (s *Store) Check(ctx context.Context) error {
	if err := s.client.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("redis: PING: %w", refusal("PING", err))
	}
	v, err := s.client.Eval(ctx, selfTest, nil).Text()
	if err != nil {
		return fmt.Errorf("redis: trying a script: %w", refusal("scripts (EVAL) that call TIME", err))
	}
	if v != "ok" {
		return fmt.Errorf("redis: trying a script: %w", &Unsupported{"its Lua differs in " + v})
	}
	if err := s.client.ScriptLoad(ctx, s.text).Err(); err != nil {
		return fmt.Errorf("redis: loading the script: %w", refusal("SCRIPT LOAD", err))
	}
	if err := s.combiner.decide(ctx, trial(), checkTimeout); err != nil {
		return fmt.Errorf("redis: trying to count: %w", refusal("to count under the keys "+s.prefixes[0]+"*", err))
	}
	return nil
}

// checkTimeout bounds Check's try at counting: whether the server can count is asked, not how fast.
const checkTimeout = 2 * time.Second

// trial is a batch that writes a counter which is gone a second later.
func trial() *limiter.Batch {
	return &limiter.Batch{
		Hits: []limiter.Hit{{
			Key: "check", Cost: 1, Charge: limiter.ChargeDenied, Limit: &limiter.Limit{Requests: 1, Period: time.Second},
		}},
		Decisions: make([]limiter.Decision, 1),
	}
}

// refusal tells a server's refusal of what from a server that doesn't answer.
func refusal(what string, err error) error {
	var answer redis.Error
	if !errors.As(err, &answer) || passing(err) {
		return err
	}
	return &Unsupported{fmt.Sprintf("it refuses %s: %s", what, err)}
}

// passing tells whether a server's error will go away by itself.
func passing(err error) bool {
	for _, prefix := range []string{"LOADING", "BUSY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "READONLY", "OOM", "MISCONF",
		"NOREPLICAS"} {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	return strings.Contains(err.Error(), "max number of clients reached")
}

// Version is the server's version, or "" if it doesn't tell.
func (s *Store) Version(ctx context.Context) string {
	info, err := s.client.Info(ctx, "server").Result()
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(info, "redis_version:")
	version, _, _ := strings.Cut(rest, "\r\n")
	return version
}

// Address is where the server is, without secrets.
func (s *Store) Address() string { return s.client.Options().Addr }
