package drills

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// deadline is what callers grant a call, which is Envoy's default.
const deadline = 20 * time.Millisecond

// load is the calls of a client, in the order in which they began.
type load struct {
	t        testing.TB
	deadline time.Duration
	stop     context.CancelFunc
	ctx      context.Context
	workers  sync.WaitGroup

	mu    sync.Mutex
	calls []call
}

// call is what a caller saw.
type call struct {
	domain string
	began  time.Time
	took   time.Duration
	ended  bool
	code   codes.Code
	over   bool
	by     string // the failure policies that answered, if any did
}

// source is whom to ask, and what.
type source struct {
	client  ratelimit.RateLimitServiceClient
	request func(n int) *ratelimit.RateLimitRequest
}

func newLoad(t testing.TB) *load {
	l := &load{t: t, deadline: deadline}
	l.ctx, l.stop = context.WithCancel(context.Background())
	t.Cleanup(l.end)
	return l
}

// end ends the calling, and returns when all calls have ended.
func (l *load) end() {
	l.stop()
	l.workers.Wait()
}

// arrears is how many calls are made up for after a time in which this process had no CPU. The rest is dropped: a
// burst of them would test this machine.
const arrears = 5

// open calls so often a second, whatever becomes of the calls, all sources in turn.
func (l *load) open(perSecond int, sources ...source) {
	l.workers.Go(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		began, sent, dropped := time.Now(), 0, 0
		for l.ctx.Err() == nil {
			due := int(time.Since(began).Seconds()*float64(perSecond)) - sent - dropped
			dropped += max(due-arrears, 0)
			for range min(due, arrears) {
				s, n := sources[sent%len(sources)], sent/len(sources)
				l.workers.Go(func() { l.call(s.client, s.request(n)) })
				sent++
			}
			<-tick.C
		}
	})
}

func (l *load) call(client ratelimit.RateLimitServiceClient, req *ratelimit.RateLimitRequest) {
	ctx, cancel := context.WithTimeout(context.Background(), l.deadline)
	defer cancel()
	n, began := l.begin(req.GetDomain()), time.Now()
	answer, err := client.ShouldRateLimit(ctx, req)
	took := time.Since(began)
	l.mu.Lock()
	defer l.mu.Unlock()
	c := &l.calls[n]
	c.took, c.ended, c.code = took, true, status.Code(err)
	c.over = answer.GetOverallCode() == ratelimit.RateLimitResponse_OVER_LIMIT
	c.by = answer.GetDynamicMetadata().GetFields()["degraded"].GetStringValue()
}

func (l *load) begin(domain string) (number int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = append(l.calls, call{domain: domain, began: time.Now()})
	return len(l.calls) - 1
}

// begun is how many calls have begun.
func (l *load) begun() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.calls)
}

// awaitCalls returns once n more calls have begun.
func (l *load) awaitCalls(n int) {
	l.t.Helper()
	want := l.begun() + n
	proctest.Eventually(l.t, fmt.Sprintf("%d calls", n), func() bool { return l.begun() >= want })
}

// during returns what became of the calls that began while do ran.
func (l *load) during(do func()) phase {
	l.t.Helper()
	from := l.begun()
	do()
	return l.between(from, l.begun())
}

// between returns what became of some calls, once they have ended.
func (l *load) between(from, to int) phase {
	l.t.Helper()
	var calls []call
	proctest.Eventually(l.t, "calls end", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		calls = slices.Clone(l.calls[from:to])
		return !slices.ContainsFunc(calls, func(c call) bool { return !c.ended })
	})
	return calls
}

// phase is some calls.
type phase []call

// tally is what became of some calls.
type tally struct {
	calls, ok, over, late int
	marked                int // answers of a failure policy
	markedOK              int // of those, the ones that admitted
	failed                map[codes.Code]int
	took                  []time.Duration // in order
}

// of counts the calls of some domains; of all but the control if none is named.
func (p phase) of(domains ...string) tally {
	t := tally{failed: map[codes.Code]int{}}
	for _, c := range p {
		if slices.Contains(domains, c.domain) || len(domains) == 0 && c.domain != control {
			t.add(c)
		}
	}
	slices.Sort(t.took)
	return t
}

func (t *tally) add(c call) {
	t.calls++
	t.took = append(t.took, c.took)
	switch {
	case c.code == codes.DeadlineExceeded:
		t.late++
	case c.code != codes.OK:
		t.failed[c.code]++
	case c.over:
		t.over++
	default:
		t.ok++
	}
	if c.by == "" {
		return
	}
	t.marked++
	if !c.over {
		t.markedOK++
	}
}

// String tells the numbers.
func (t tally) String() string {
	return fmt.Sprintf("%d calls: %d OK, %d over limit, of these %d by a policy; %d late, %v failed; p50 %v, p99 %v",
		t.calls, t.ok, t.over, t.marked, t.late, t.failed, t.percentile(50), t.percentile(99))
}

func (t tally) percentile(p int) time.Duration {
	if len(t.took) == 0 {
		return 0
	}
	return t.took[min(len(t.took)*p/100, len(t.took)-1)].Round(100 * time.Microsecond)
}

// control is the domain of calls that measure this machine: they go to a service of their own that needs no Redis.
const control = "control"

// stall is how long a call takes at most that waits for nobody, unless the machine has other things to do.
const stall = 5 * time.Millisecond

// few is how many of n calls may end otherwise than they should, for lack of CPU: one in twenty, and more if the control
// calls of the same time show that the machine is busy. Other calls have up to three times as many chances to be held up.
func (p phase) few(n int) int {
	t := p.of(control)
	held, _ := slices.BinarySearch(t.took, stall)
	held = t.calls - held
	return 2 + n/20 + 3*n*held/max(t.calls, 1)
}

// dial returns a client of a service, with a connection of its own.
func dial(t testing.TB, addr string) ratelimit.RateLimitServiceClient {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // the service may be gone
	return ratelimit.NewRateLimitServiceClient(conn)
}

// request asks a domain of one descriptor.
func request(domain, key, value string) *ratelimit.RateLimitRequest {
	return &ratelimit.RateLimitRequest{Domain: domain, Descriptors: []*common.RateLimitDescriptor{
		{Entries: []*common.RateLimitDescriptor_Entry{{Key: key, Value: value}}},
	}}
}

// always asks the same.
func always(client ratelimit.RateLimitServiceClient, req *ratelimit.RateLimitRequest) source {
	return source{client, func(int) *ratelimit.RateLimitRequest { return req }}
}
