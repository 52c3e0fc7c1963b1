package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
	"github.com/envoy-rls/envoy-rls/pkg/storetest"
)

// TestACombinedCallDecidesAsItsRequestsOneByOne puts random requests, many of them alike, into one call, and
// compares with deciding them one after the other in the order in which the call has them.
func TestACombinedCallDecidesAsItsRequestsOneByOne(t *testing.T) {
	s := open(t, proctest.StartRedis(t), "")
	began, run := time.Now(), 0
	clock := &storetest.Clock{}
	s.now, s.jitter = clock.Micros, func() int64 { return 1e6 }
	pauses := rapid.OneOf(rapid.Int64Range(-3e8, 3e9), rapid.Int64Range(-1e9, 0), rapid.Int64Range(0, 2000))
	rapid.Check(t, func(t *rapid.T) {
		run++
		clock.Set(began)
		model := storetest.Model{}
		for range rapid.IntRange(1, 6).Draw(t, "calls") {
			clock.Advance(time.Duration(pauses.Draw(t, "pause")) * time.Microsecond)
			c := newCall(plain)
			c.taken = randomWaiters(t, run, began, clock.Micros())
			for c.fill() {
				if err := s.lanes[0].runCall(context.Background(), c); err != nil {
					t.Fatal(err)
				}
				for _, w := range inOrder(c) {
					storetest.Compare(t, w.batch, model.Decide(w.batch, clock.Micros()))
				}
				c.finish(nil)
			}
		}
	})
}

// randomWaiters draws requests of some kinds in any order, some of which come several times.
func randomWaiters(t *rapid.T, run int, began time.Time, now int64) []*waiter {
	var ws []*waiter
	for range rapid.IntRange(1, 6).Draw(t, "kinds") {
		b := storetest.RandomBatch(t, run, began, now)
		switch rapid.IntRange(0, 4).Draw(t, "kind") {
		case 0:
			oneWindow(t, run, b)
		case 1:
			oneBucket(t, run, b)
		case 2:
			severalWindows(t, run, b)
		}
		for range rapid.IntRange(1, 6).Draw(t, "alike") {
			ws = append(ws, waiting(&limiter.Batch{Hits: b.Hits, Decisions: make([]limiter.Decision, len(b.Hits))}))
		}
	}
	return rapid.Permutation(ws).Draw(t, "order")
}

// oneWindow makes b a charge of one fixed window, which the script has a shorter way for, unless others hit it, too.
func oneWindow(t *rapid.T, run int, b *limiter.Batch) {
	h := &b.Hits[0]
	h.Limit = &limiter.Limit{Requests: rapid.Uint32Range(0, 20).Draw(t, "requests"), Period: 10 * time.Minute}
	h.Cost, h.At = rapid.Int64Range(1, 12).Draw(t, "charge"), 0
	h.Key = fmt.Sprintf("random:%d:fixed_window10m0s:%d", run, rapid.IntRange(0, 1).Draw(t, "window"))
	b.Hits, b.Decisions = b.Hits[:1], b.Decisions[:1]
}

// severalWindows makes b charges of fixed windows, all of them or none, which the script has a shorter way for, too.
func severalWindows(t *rapid.T, run int, b *limiter.Batch) {
	for i := range b.Hits {
		h := &b.Hits[i]
		period := time.Duration(rapid.IntRange(1, 3).Draw(t, "seconds")) * time.Second
		h.Limit = &limiter.Limit{Requests: rapid.Uint32Range(0, 12).Draw(t, "requests"), Period: period}
		h.Cost, h.At, h.Role, h.Charge = rapid.Int64Range(1, 5).Draw(t, "charge"), 0, limiter.Enforced, limiter.Together
		h.Key = fmt.Sprintf("random:%d:fixed_window%s:%d", run, period, rapid.IntRange(0, 3).Draw(t, "window"))
	}
}

// oneBucket makes all hits of b hit one bucket, under limits that differ, one of which may give nothing back.
func oneBucket(t *rapid.T, run int, b *limiter.Batch) {
	for i := range b.Hits {
		b.Hits[i].Limit = &limiter.Limit{
			Algorithm: limiter.TokenBucket, Burst: 10, Period: time.Hour,
			Requests: rapid.SampledFrom([]uint32{0, 7, 20}).Draw(t, "rate"),
		}
		b.Hits[i].Key = fmt.Sprintf("random:%d:token_bucket1h0m0s:0", run)
		b.Hits[i].Cost = rapid.Int64Range(-2, 4).Draw(t, "tokens")
	}
}

// waiting is a request that is queued.
func waiting(b *limiter.Batch) *waiter {
	w := newWaiter()
	w.begin(context.Background(), b, time.Now(), time.Minute)
	return w
}

// inOrder are the requests of a call in the order in which it decides them.
func inOrder(c *call) []*waiter {
	var ws []*waiter
	for _, n := range slices.Concat(c.encoding.general.groups, c.encoding.plain.groups) {
		for w := c.groups[n].first; w != nil; w = w.like {
			ws = append(ws, w)
		}
	}
	return ws
}

func TestLikeRequestsOfACallAreOneGroup(t *testing.T) {
	c := newCall(plain)
	add := func(b *limiter.Batch) { c.taken = append(c.taken, waiting(b)) }
	for range 50 {
		add(batch("hot", 1))
		add(batch("hot", 2))
	}
	add(batch("cold", 1))
	for range 2 {
		add(batch("hot", -1)) // give-backs never share: what each finds differs
	}
	c.fill()
	var sizes []int
	for i := range c.groups {
		sizes = append(sizes, c.groups[i].requests)
	}
	if !slices.Equal(sizes, []int{50, 50, 1, 1, 1}) || len(c.encoding.keys) != 2 {
		t.Errorf("groups of %d requests, and %d keys", sizes, len(c.encoding.keys))
	}
}

func TestOnlyAWindowThatNothingElseHitsIsPlain(t *testing.T) {
	window := func(key string, cost int64) limiter.Hit { return batch(key, cost).Hits[0] }
	late, bucket := window("late", 1), window("bucket", 1)
	late.At = time.Now().UnixMicro()
	bucket.Limit = &limiter.Limit{Algorithm: limiter.TokenBucket, Requests: 1, Burst: 1, Period: time.Hour}
	denied := window("b", 1)
	denied.Charge = limiter.ChargeDenied
	for _, r := range []struct {
		name  string
		calls [][]limiter.Hit
		plain int
	}{
		{"a charge", [][]limiter.Hit{{window("a", 1)}}, 1},
		{"charges of several windows", [][]limiter.Hit{{window("a", 1)}, {window("b", 1)}, {window("c", 7)}}, 3},
		{"like charges", [][]limiter.Hit{{window("a", 1)}, {window("a", 1)}}, 1},
		{"charges of one window that differ", [][]limiter.Hit{{window("a", 1)}, {window("a", 2)}}, 0},
		{"a window that another request hits among others", [][]limiter.Hit{{window("a", 1)}, {window("a", 1), window("b", 1)}}, 0},
		{"a look", [][]limiter.Hit{{window("a", 0)}}, 0},
		{"a give-back", [][]limiter.Hit{{window("a", -1)}}, 0},
		{"a late charge", [][]limiter.Hit{{late}}, 0},
		{"a bucket", [][]limiter.Hit{{bucket}}, 0},
		{"two windows at once", [][]limiter.Hit{{window("a", 1), window("b", 1)}}, 1},
		{"two windows at once, one of which another request hits", [][]limiter.Hit{{window("a", 1), window("b", 1)}, {window("b", 1)}}, 0},
		{"one window twice", [][]limiter.Hit{{window("a", 1), window("a", 1)}}, 0},
		{"two windows, one of which is charged if it is denied", [][]limiter.Hit{{window("a", 1), denied}}, 0},
	} {
		c := newCall(plain)
		for _, hits := range r.calls {
			c.taken = append(c.taken, waiting(&limiter.Batch{Hits: hits, Decisions: make([]limiter.Decision, len(hits))}))
		}
		c.fill()
		if n := len(c.encoding.plain.groups); n != r.plain {
			t.Errorf("%s: %d plain groups, want %d", r.name, n, r.plain)
		}
	}
}

// TestABucketUnderTwoLimitsIsTwoCalls: a bucket fills at the rate of the limit that asks.
func TestABucketUnderTwoLimitsIsTwoCalls(t *testing.T) {
	c := newCall(plain)
	for i := range 6 {
		b := batch("bucket", 1)
		b.Hits[0].Limit = &limiter.Limit{Algorithm: limiter.TokenBucket, Requests: uint32(1 + i%2), Burst: 1, Period: time.Hour}
		c.taken = append(c.taken, waiting(b))
	}
	for range 2 {
		c.fill()
		if n := c.requests(); n != 3 {
			t.Errorf("a call has %d requests, want 3", n)
		}
		c.finish(nil)
	}
	if len(c.taken) != 0 {
		t.Errorf("%d requests are left", len(c.taken))
	}
}

// plain leaves names as they are.
func plain(*limiter.Hit) string { return "" }

// stalled is a combiner whose calls wait until they are let go, and remember their keys.
type stalled struct {
	*combiner
	let  chan struct{}
	mu   sync.Mutex
	keys [][]string
}

func newStalled() *stalled {
	s := &stalled{let: make(chan struct{})}
	s.combiner = newCombiner(func(ctx context.Context, c *call) error {
		keys := make([]string, len(c.counters))
		for i := range c.counters {
			keys[i] = strings.Clone(c.counters[i].name)
		}
		s.mu.Lock()
		s.keys = append(s.keys, keys)
		s.mu.Unlock()
		select {
		case <-s.let:
			return errors.New("let go")
		case <-ctx.Done():
			return ctx.Err()
		}
	}, func() int { return 1 }, plain)
	return s
}

// decide waits until the request is queued, or on its way.
func (s *stalled) decide(t *testing.T, flow, key string) {
	t.Helper()
	before := s.seen()
	go func() {
		b := batch(key, 1)
		b.Flow = flow
		_, _ = s.combiner.decide(context.Background(), b, time.Minute) // always "let go"
	}()
	proctest.Eventually(t, "the request is queued", func() bool { return s.seen() > before })
}

// begin has a call under way, before others wait.
func (s *stalled) begin(t *testing.T, flow string) {
	t.Helper()
	s.decide(t, flow, "under way")
	s.calls(t, 1)
}

// seen is how many requests were taken or wait.
func (s *stalled) seen() int {
	s.mu.Lock()
	n := 0
	for _, keys := range s.keys {
		n += len(keys)
	}
	s.mu.Unlock()
	s.combiner.mu.Lock()
	defer s.combiner.mu.Unlock()
	for _, f := range s.flows {
		n += f.waiting()
	}
	return n
}

// calls returns the keys of the calls that have begun, once there are n of them.
func (s *stalled) calls(t *testing.T, n int) [][]string {
	t.Helper()
	var calls [][]string
	proctest.Eventually(t, fmt.Sprintf("%d calls have begun", n), func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		calls = slices.Clone(s.keys)
		return len(calls) >= n
	})
	return calls
}

func TestFlowsTakeTurns(t *testing.T) {
	s := newStalled()
	s.begin(t, "first")
	for i := range 300 {
		s.decide(t, "flood", fmt.Sprint("flood", i))
	}
	s.decide(t, "quiet", "quiet")
	s.let <- struct{}{}
	if keys := s.calls(t, 2)[1]; !slices.Contains(keys, "quiet") || len(keys) != maxRequests {
		t.Errorf("the next call has %d requests, the quiet one among them: %t", len(keys), slices.Contains(keys, "quiet"))
	}
	close(s.let)
}

func TestAFloodDoesntHoldUpOtherFlows(t *testing.T) {
	s := newStalled()
	s.begin(t, "flood")
	const calls = 4
	for i := range calls * maxRequests {
		s.decide(t, "flood", fmt.Sprint("flood", i))
	}
	for i := range calls - 1 {
		quiet := fmt.Sprint("quiet", i)
		s.decide(t, "quiet", quiet)
		if keys := s.calls(t, i+2); len(keys) > i+2 || !slices.Contains(keys[i+1], quiet) {
			t.Fatalf("%d calls have begun, and the last one is for %s", len(keys), keys[i+1])
		}
		s.let <- struct{}{} // of the two calls, either: then there is one
		proctest.Eventually(t, "one call is under way", func() bool {
			s.combiner.mu.Lock()
			defer s.combiner.mu.Unlock()
			return s.active == 1
		})
	}
	close(s.let)
}

// TestWhatIsTooLateIsNotAskedFor has requests wait for a call, one of them until too little of its time is left for another.
func TestWhatIsTooLateIsNotAskedFor(t *testing.T) {
	s := newStalled()
	s.begin(t, "d")
	s.roundTrip.Store(int64(8 * time.Minute))
	waits := func(key string, waited, within time.Duration) *waiter {
		w := newWaiter()
		w.begin(context.Background(), batch(key, 1), time.Now().Add(-waited), within)
		if err := s.submit(w, "d"); err != nil {
			t.Fatal(err)
		}
		return w
	}
	late := waits("late", time.Hour, time.Hour+9*time.Minute)
	waits("in time", time.Hour, 2*time.Hour)
	waits("impatient", 0, 9*time.Minute)
	s.let <- struct{}{}
	if keys := fmt.Sprint(s.calls(t, 2)[1]); keys != "[in time impatient]" {
		t.Errorf("the call has %s", keys)
	}
	s.let <- struct{}{}
	<-late.done
	if err := failure(late.err); err.Reason != "timeout" || !errors.Is(err, limiter.ErrNotAsked) {
		t.Errorf("the error is %v, for the reason %s", err, err.Reason)
	}
}

func TestAFlowsQueueIsBounded(t *testing.T) {
	s := newStalled()
	s.begin(t, "first")
	for range maxQueued {
		if err := s.submit(waiting(batch("flood", 1)), "flood"); err != nil {
			t.Fatal(err)
		}
	}
	_, err := s.combiner.decide(context.Background(), &limiter.Batch{Flow: "flood"}, time.Minute)
	if !errors.Is(err, ErrQueueFull) {
		t.Errorf("the error is %v", err)
	}
	if err := s.submit(waiting(batch("quiet", 1)), "quiet"); err != nil {
		t.Error(err)
	}
	close(s.let)
}

func TestARequestWhoseCallerLeftIsNotCounted(t *testing.T) {
	s := newStalled()
	s.begin(t, "d")
	ctx, cancel := context.WithCancel(context.Background())
	left := make(chan error)
	go func() {
		_, err := s.combiner.decide(ctx, batch("gone", 1), time.Minute)
		left <- err
	}()
	proctest.Eventually(t, "the request is queued", func() bool { return s.seen() == 2 })
	cancel()
	s.decide(t, "d", "stays")
	close(s.let)
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
	proctest.Eventually(t, "all calls end", func() bool {
		s.combiner.mu.Lock()
		defer s.combiner.mu.Unlock()
		return s.active == 0
	})
	if got := fmt.Sprint(s.keys); got != "[[under way] [stays]]" {
		t.Errorf("the calls were %s", got)
	}
}

// TestCallersLeaveWhenTheirTimeIsOver has many wait for different times behind a call that doesn't end.
func TestCallersLeaveWhenTheirTimeIsOver(t *testing.T) {
	s := newStalled()
	s.begin(t, "d")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var callers sync.WaitGroup
	var early atomic.Int64
	for i := range 100 {
		within := time.Duration(1+(i*37)%100) * time.Millisecond
		callers.Go(func() {
			began := time.Now()
			_, err := s.combiner.decide(ctx, batch("late", 1), within)
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) < within {
				early.Add(1)
			}
		})
	}
	callers.Wait()
	if n := early.Load(); n > 0 || ctx.Err() != nil {
		t.Errorf("%d callers left early; %v", n, ctx.Err())
	}
	patient, impatient := context.WithTimeout(context.Background(), time.Millisecond)
	defer impatient()
	if _, err := s.combiner.decide(patient, batch("late", 1), time.Hour); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the error is %v", err)
	}
	close(s.let)
}

// TestWhoIsCanceledWhileRequestsAreTriedOneByOneIsNotDecided has a call fail for keys on their way, and a caller leave then.
func TestWhoIsCanceledWhileRequestsAreTriedOneByOneIsNotDecided(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	c := newCombiner(func(context.Context, *call) error {
		cancel()
		return errTryAgain
	}, func() int { return 1 }, plain)
	if _, err := c.decide(ctx, batch("gone", 1), time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
	c.close()
}

func TestACallerWaitsNoLongerThanItsBudget(t *testing.T) {
	r := proctest.StartRedis(t)
	s := open(t, r, "p:")
	s.timeout = 20 * time.Millisecond
	check(t, s)
	pause := r.Client().Do(context.Background(), "client", "pause", "100000", "all")
	if pause.Err() != nil {
		t.Fatal(pause.Err())
	}
	for range 3 {
		if err := s.Decide(context.Background(), batch("a", 1)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the error is %v", err)
		}
	}
}

// TestExactlyTheLimitIsAdmitted covers every algorithm where the number is well defined: windows so long that
// none ends, and buckets that get nothing back meanwhile.
func TestExactlyTheLimitIsAdmitted(t *testing.T) {
	r := proctest.StartRedis(t)
	for _, inFlight := range []int{1, 4} {
		for i, l := range []limiter.Limit{
			{Algorithm: limiter.FixedWindow, Requests: 500, Period: limiter.MaxPeriod},
			{Algorithm: limiter.SlidingWindow, Requests: 500, Period: limiter.MaxPeriod},
			{Algorithm: limiter.SlidingLog, Requests: 128, Period: limiter.MaxPeriod},
			{Algorithm: limiter.TokenBucket, Requests: 10, Burst: 10, Period: limiter.MaxPeriod},
			{Algorithm: limiter.LeakyBucket, Requests: 10, Burst: 10, Period: limiter.MaxPeriod},
		} {
			s := open(t, r, fmt.Sprint(inFlight, ":"))
			s.inFlight = inFlight
			want := int64(max(l.Burst, l.Requests))
			if got := admitted(t, s, fmt.Sprint("hot", i), &l); got != want {
				t.Errorf("%s with %d calls in flight admits %d, want %d", l.Algorithm, inFlight, got, want)
			}
		}
	}
}

func admitted(t *testing.T, s *Store, key string, l *limiter.Limit) int64 {
	t.Helper()
	var n atomic.Int64
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for range 30 {
				b := batch(key, 1)
				b.Hits[0].Limit = l
				if err := s.Decide(context.Background(), b); err != nil {
					t.Error(err)
				}
				if b.Allowed {
					n.Add(1)
				}
			}
		})
	}
	wg.Wait()
	return n.Load()
}
