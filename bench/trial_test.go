package main

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
)

// gentle is enough pressure for a test, and answers may take as long as a busy machine needs.
func gentle() Pressure {
	return Pressure{
		Callers:     8,
		Connections: 2,
		Warmup:      10 * time.Millisecond,
		Arrivals:    "steady",
		Timeout:     time.Minute,
	}
}

// serve serves until the test ends and gives the address.
func serve(t *testing.T, server *grpc.Server) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	go func() { _ = server.Serve(listener) }()
	return listener.Addr().String()
}

func load(t *testing.T, target, scenario string, pressure Pressure) *Result {
	t.Helper()
	workload, err := newWorkload(scenario, benchDomain)
	if err != nil {
		t.Fatal(err)
	}
	result, err := Trial{
		Target:    target,
		Workload:  workload,
		Pressure:  pressure,
		Duration:  500 * time.Millisecond,
		Processes: []Process{{"self", os.Getpid()}},
	}.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if result.Errors != 0 {
		t.Errorf("%d errors, first: %s", result.Errors, result.FirstError)
	}
	return result
}

func TestTheNoopAnswersEveryScenario(t *testing.T) {
	target := serve(t, newNoopServer())
	for _, scenario := range scenarioNames() {
		t.Run(scenario, func(t *testing.T) {
			got := load(t, target, scenario, gentle())
			for tries := 1; tries < 5 && min(got.CPUSum, got.LoadCPU) == 0; tries++ { // a clock of CPU time may stand still
				got = load(t, target, scenario, gentle())
			}
			if got.Decisions == 0 || got.PerSecond <= 0 || got.OverLimit != 0 {
				t.Errorf("not sane: %+v", got)
			}
			if got.P50 <= 0 || got.P90 < got.P50 || got.P99 < got.P90 || got.Max < got.P99 {
				t.Errorf("percentiles out of order: %+v", got)
			}
			if len(got.CPU) != 1 || got.CPUSum <= 0 || got.CPUSum != got.CPU[0].Micros || got.LoadCPU <= 0 {
				t.Errorf("CPU times not sane: %+v", got)
			}
		})
	}
}

func TestAnOpenLoopHoldsItsRate(t *testing.T) {
	pressure := gentle()
	pressure.Rate = 200
	got := load(t, serve(t, newNoopServer()), "hot", pressure)
	if got.Decisions != 99 {
		t.Errorf("%d decisions in half a second, one each 5 ms", got.Decisions)
	}
}

// stall holds back every call from the nth on, until it is over.
type stall struct {
	from  int64
	long  time.Duration
	calls atomic.Int64
	over  chan struct{}
}

func (s *stall) intercept(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	n := s.calls.Add(1)
	if n == s.from {
		time.AfterFunc(s.long, func() { close(s.over) })
	}
	if n >= s.from {
		<-s.over
	}
	return handler(ctx, request)
}

func TestAServerThatStallsOnceShowsItOverTheWire(t *testing.T) {
	const long = 200 * time.Millisecond
	once := &stall{from: 50, long: long, over: make(chan struct{})}
	server := grpc.NewServer(grpc.UnaryInterceptor(once.intercept))
	ratelimit.RegisterRateLimitServiceServer(server, noopService{})
	pressure := gentle()
	pressure.Rate, pressure.Warmup = 400, 0
	got := load(t, serve(t, server), "hot", pressure)
	// 80 requests of 200 fell due in the stall. A busy machine makes latencies longer, never shorter.
	if got.Max < micros(long)*0.95 || got.P90 < micros(long)*0.7 {
		t.Errorf("max %.0f µs, p90 %.0f µs", got.Max, got.P90)
	}
}

func TestTheShareOverLimitIsCounted(t *testing.T) {
	var calls atomic.Int64
	overEveryFourth := func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		response, err := handler(ctx, request)
		if calls.Add(1)%4 == 0 {
			response.(*ratelimit.RateLimitResponse).OverallCode = ratelimit.RateLimitResponse_OVER_LIMIT
		}
		return response, err
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(overEveryFourth))
	ratelimit.RegisterRateLimitServiceServer(server, noopService{})
	pressure := gentle()
	got := load(t, serve(t, server), "hot", pressure)
	// Which are the measured ones of the calls in flight when the measured part begins, and which their answers, is open.
	if over, all := got.OverLimit*float64(got.Decisions), float64(got.Decisions); math.Abs(over-all/4) > float64(pressure.Callers) {
		t.Errorf("%.0f of %.0f are over limit", over, all)
	}
}

func TestATrialOfNothingFailsAndSaysWhy(t *testing.T) {
	server := grpc.NewServer() // has no rate limit service
	workload, err := newWorkload("hot", benchDomain)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Trial{Target: serve(t, server), Workload: workload, Pressure: gentle()}.Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "unknown service") {
		t.Errorf("error %v", err)
	}
}

func TestLoadPrintsForPeopleAndPrograms(t *testing.T) {
	command := &Load{
		Target:   serve(t, newNoopServer()),
		Scenario: "hot",
		Domain:   benchDomain,
		Duration: 50 * time.Millisecond,
		Pressure: gentle(),
		PID:      []Process{{"self", os.Getpid()}},
	}
	out := new(bytes.Buffer)
	if err := command.Run(t.Context(), out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"scenario", "decisions", "p99", "over limit", "errors", "µs a decision"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	out.Reset()
	command.JSON = true
	if err := command.Run(t.Context(), out); err != nil {
		t.Fatal(err)
	}
	var result Result
	if err := json.Unmarshal(out.Bytes(), &result); err != nil || result.Decisions == 0 {
		t.Errorf("%d decisions, error %v in:\n%s", result.Decisions, err, out)
	}
}
