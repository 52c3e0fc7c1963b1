package main

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// processRules admit 1000 users a day, and more of the rest.
const processRules = `
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: day, requests_per_unit: 1000}
  - key: path
    rate_limit: {unit: day, requests_per_unit: 1500}
  - key: tenant
    rate_limit: {unit: day, requests_per_unit: 100000}
  - {key: fixed_window, rate_limit: &decade {unit: year, unit_multiplier: 10, requests_per_unit: 100, algorithm: fixed_window}}
  - {key: sliding_window, rate_limit: {<<: *decade, algorithm: sliding_window}}
  - {key: sliding_log, rate_limit: {<<: *decade, algorithm: sliding_log}}
  - {key: token_bucket, rate_limit: {<<: *decade, algorithm: token_bucket}}
  - {key: leaky_bucket, rate_limit: {<<: *decade, algorithm: leaky_bucket, burst: 100}}
`

const (
	admitted   = 1000
	asked      = 20_000
	goroutines = 64
)

func TestTwoProcessesOverOneRedisAdmitExactlyTheLimit(t *testing.T) {
	redis := proctest.StartRedis(t)
	l := newLoad(t, startServices(t, 2, "--redis="+redis.URL())...)
	l.admitsExactlyTheLimit()
}

func TestTwoProcessesOverOneRedisChargeAllDescriptorsOfARequestOrNone(t *testing.T) {
	redis := proctest.StartRedis(t)
	l := newLoad(t, startServices(t, 2, "--redis="+redis.URL())...)
	l.chargesAllOrNone()
}

// TestFourProcessesAdmitExactlyTheLimitOfEveryAlgorithm has periods so long that no window ends and no bucket
// gets anything back meanwhile.
func TestFourProcessesAdmitExactlyTheLimitOfEveryAlgorithm(t *testing.T) {
	redis := proctest.StartRedis(t)
	for _, inFlight := range []string{"1", "4"} {
		l := newLoad(t, startServices(t, 4, "--redis="+redis.URL(), "--redis-in-flight="+inFlight, "--key-prefix="+inFlight)...)
		for _, algorithm := range limiter.AlgorithmNames() {
			l.admitsExactly(100, 1000, shopRequest(algorithm))
		}
		l.tells(1000 * len(limiter.AlgorithmNames()))
	}
}

func TestOneProcessInMemoryAdmitsExactlyTheLimit(t *testing.T) {
	l := newLoad(t, startServices(t, 1)...)
	l.admitsExactlyTheLimit()
}

func TestOneProcessInMemoryChargesAllDescriptorsOfARequestOrNone(t *testing.T) {
	l := newLoad(t, startServices(t, 1)...)
	l.chargesAllOrNone()
}

func TestARedisThatForgetsItsScriptsUnderLoadLosesNoRequest(t *testing.T) {
	redis := proctest.StartRedis(t)
	l := newLoad(t, startServices(t, 2, "--redis="+redis.URL())...)
	client := redis.Client()
	ctx, cancel := context.WithCancel(t.Context())
	flushes := 0
	var flusher sync.WaitGroup
	flusher.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			if err := client.ScriptFlush(context.Background()).Err(); err != nil {
				t.Errorf("SCRIPT FLUSH: %v", err)
				return
			}
			flushes++
			<-tick.C
		}
	})
	l.admitsExactly(admitted, asked/4, shopRequest("user"))
	cancel()
	flusher.Wait()
	if flushes < 10 {
		t.Errorf("the scripts were flushed %d times, which proves little", flushes)
	}
	l.tells(asked / 4)
}

func TestAClientGetsAnAnswerBeforeItsDeadlineFromAFrozenRedis(t *testing.T) {
	for policy, want := range map[string]codes.Code{"error": codes.Unavailable, "local": codes.OK} {
		t.Run(policy, func(t *testing.T) {
			redis := proctest.StartRedis(t)
			service := proctest.StartService(t, "--rules="+writeRules(t), "--redis="+redis.URL(), "--default-on-store-failure="+policy)
			client := ratelimit.NewRateLimitServiceClient(dial(t, service.GRPC))
			succeeds := func() bool {
				answer, err := client.ShouldRateLimit(t.Context(), shopRequest("user"))
				return err == nil && answer.GetDynamicMetadata() == nil
			}
			proctest.Eventually(t, "a call succeeds", succeeds)
			redis.Signal(syscall.SIGSTOP)
			// A machine that is busy with other things may hold up calls for 50 ms, hardly most of them for long.
			proctest.Eventually(t, fmt.Sprintf("most calls end as %s", want), func() bool {
				const calls = 21
				inTime := 0
				for range calls {
					ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
					answer, err := client.ShouldRateLimit(ctx, shopRequest("user"))
					cancel()
					switch by := answer.GetDynamicMetadata().GetFields()["degraded"].GetStringValue(); {
					case status.Code(err) == codes.DeadlineExceeded:
						continue
					case status.Code(err) != want || err == nil && by != policy:
						t.Errorf("a frozen Redis made a call end as %v, degraded by %q; it must be %s, or late", err, by, want)
					}
					inTime++
				}
				return inTime > calls/2
			})
			redis.Signal(syscall.SIGCONT)
			proctest.Eventually(t, "calls succeed again", succeeds)
		})
	}
}

func TestHealthIsToldOfTheServerAndOfTheService(t *testing.T) {
	service := startServices(t, 1)[0]
	client := healthpb.NewHealthClient(dial(t, service.GRPC))
	for _, name := range []string{"", "ratelimit"} {
		answer, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{Service: name})
		if err != nil || answer.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("the health of %q is %s, %v", name, answer.GetStatus(), err)
		}
	}
	if _, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{Service: "other"}); status.Code(err) != codes.NotFound {
		t.Errorf("the health of a service that there is not: %v", err)
	}
}

func TestReflectionListsTheRateLimitService(t *testing.T) {
	service := startServices(t, 1)[0]
	stream, err := reflectionpb.NewServerReflectionClient(dial(t, service.GRPC)).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = stream.Send(&reflectionpb.ServerReflectionRequest{
		MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{},
	})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range answer.GetListServicesResponse().GetService() {
		names = append(names, s.GetName())
	}
	if want := "envoy.service.ratelimit.v3.RateLimitService"; !slices.Contains(names, want) {
		t.Errorf("reflection lists %q, without %s", names, want)
	}
}

// startServices starts n services with the rules above. Their store has time enough on a busy machine: no
// failure policy may have to answer.
func startServices(t *testing.T, n int, args ...string) []*proctest.Service {
	t.Helper()
	args = append(args, "--rules="+writeRules(t), "--store-timeout=5s")
	services := make([]*proctest.Service, n)
	for i := range services {
		services[i] = proctest.StartService(t, args...)
	}
	return services
}

func writeRules(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "shop.yaml")
	if err := os.WriteFile(file, []byte(processRules), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func dial(t *testing.T, addr string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // the service may be gone
	return conn
}

// shopRequest has a descriptor for each key.
func shopRequest(keys ...string) *ratelimit.RateLimitRequest {
	req := &ratelimit.RateLimitRequest{Domain: "shop"}
	for _, key := range keys {
		req.Descriptors = append(req.Descriptors, &common.RateLimitDescriptor{
			Entries: []*common.RateLimitDescriptor_Entry{{Key: key, Value: "the same"}},
		})
	}
	return req
}

// load is many clients of some services.
type load struct {
	*testing.T
	services []*proctest.Service
	clients  []ratelimit.RateLimitServiceClient
}

func newLoad(t *testing.T, services ...*proctest.Service) *load {
	t.Helper()
	l := &load{T: t, services: services}
	for i := range goroutines {
		if i < 4*len(services) { // a connection of Envoy's, too, carries the calls of many
			l.clients = append(l.clients, ratelimit.NewRateLimitServiceClient(dial(t, services[i%len(services)].GRPC)))
		}
	}
	return l
}

func (l *load) admitsExactlyTheLimit() {
	l.Helper()
	l.admitsExactly(admitted, asked, shopRequest("user"))
	l.left(map[string]uint32{"user": 0})
	l.tells(asked)
}

func (l *load) chargesAllOrNone() {
	l.Helper()
	l.admitsExactly(admitted, asked, shopRequest("user", "path", "tenant"), shopRequest("tenant", "path", "user"),
		shopRequest("path", "user", "tenant"))
	l.left(map[string]uint32{"user": 0, "path": 500, "tenant": 99_000})
	l.tells(asked)
}

// admitsExactly sends so many requests, all kinds in turn, from all goroutines at once, and counts their
// answers: each request is answered, and as many as the limit says are admitted.
func (l *load) admitsExactly(want int, total int64, kinds ...*ratelimit.RateLimitRequest) {
	l.Helper()
	var sent atomic.Int64
	var mu sync.Mutex
	answers := map[string]int{}
	var workers sync.WaitGroup
	for w := range goroutines {
		workers.Go(func() {
			mine := map[string]int{}
			for n := sent.Add(1); n <= total; n = sent.Add(1) {
				answer, err := l.clients[w%len(l.clients)].ShouldRateLimit(l.Context(), kinds[n%int64(len(kinds))])
				if err != nil {
					mine[err.Error()]++
					continue
				}
				mine[answer.GetOverallCode().String()]++
			}
			mu.Lock()
			defer mu.Unlock()
			for answer, n := range mine {
				answers[answer] += n
			}
		})
	}
	workers.Wait()
	wanted := map[string]int{"OK": want, "OVER_LIMIT": int(total) - want}
	maps.DeleteFunc(wanted, func(_ string, n int) bool { return n == 0 })
	if !maps.Equal(answers, wanted) {
		l.Errorf("%d requests %v were answered by %v, want %v", total, kinds, answers, wanted)
	}
}

// left looks, through each service, what remains of the limit of each key.
func (l *load) left(want map[string]uint32) {
	l.Helper()
	for key, n := range want {
		for i, client := range l.clients[:len(l.services)] {
			req := shopRequest(key)
			req.Descriptors[0].HitsAddend = wrapperspb.UInt64(0)
			answer, err := client.ShouldRateLimit(l.Context(), req)
			if err != nil {
				l.Errorf("looking at %s through service %d: %v", key, i, err)
				continue
			}
			if got := answer.GetStatuses()[0].GetLimitRemaining(); got != n {
				l.Errorf("service %d says that %d remain of %s, want %d", i, got, key, n)
			}
		}
	}
}

// tells checks what the services' metrics say: they add up to what was asked, and the store decided
// everything.
func (l *load) tells(total int) {
	l.Helper()
	sums := map[string]float64{}
	for _, s := range l.services {
		for series, v := range scrape(l.T, "http://"+s.HTTP+"/metrics") {
			name, _, _ := strings.Cut(series, "{")
			if name == "envoy_rls_requests_total" && strings.Contains(series, `code="error"`) {
				name += " error"
			}
			sums[name] += v
		}
	}
	for _, name := range []string{
		"envoy_rls_degraded_answers_total", "envoy_rls_store_errors_total", "envoy_rls_requests_total error",
	} {
		if sums[name] != 0 {
			l.Errorf("%s is %g, want 0", name, sums[name])
		}
	}
	if n := sums["envoy_rls_requests_total"]; n < float64(total) || n > float64(total)+10 {
		l.Errorf("envoy_rls_requests_total is %g, want %d and the few looks", n, total)
	}
}

// scrape reads metrics, by their names with labels.
func scrape(t *testing.T, url string) map[string]float64 {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }() // it has been read
	series := map[string]float64{}
	lines := bufio.NewScanner(r.Body)
	for lines.Scan() {
		name, value, found := strings.Cut(lines.Text(), " ")
		if strings.HasPrefix(name, "#") || !found {
			continue
		}
		if series[name], err = strconv.ParseFloat(value, 64); err != nil {
			t.Fatal(fmt.Errorf("%s: %w", lines.Text(), err))
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return series
}
