package compat

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// The modes, with and without --compat=envoyproxy-ratelimit.
const (
	compatMode = "compat"
	native     = "native"
)

// patience is how long an answer may take on a busy machine.
const patience = 20 * time.Second

// site is what all runs share.
type site struct {
	redis    *proctest.Redis
	client   *redis.Client
	starting sync.Mutex // one service at a time looks for free ports
}

// run is one run of a case against a service and counters of its own.
type run struct {
	*testing.T
	*site
	want                behaviour
	mode, prefix, rules string
	service             *proctest.Service
	rpc                 ratelimit.RateLimitServiceClient
	problems            []problem
	rolled              bool      // a window ended, so what was counted is not what the case means
	base                time.Time // from which at_seconds counts
}

// problem is something that is not as the case wants it.
type problem struct {
	part, text string // part is such as "step 2: overall" and "~c.ten.over_limit"
}

// check notes a problem unless got is want.
func (r *run) check(part string, got, want any) {
	if !reflect.DeepEqual(got, want) {
		r.wrong(part, "got %v, want %v", got, want)
	}
}

func (r *run) wrong(part, format string, args ...any) {
	r.problems = append(r.problems, problem{part, fmt.Sprintf(format, args...)})
}

// do runs the case.
func (r *run) do() {
	r.writeRules()
	if r.want.WantConfigError != nil {
		r.checkRules()
	}
	if !r.start() {
		return
	}
	before := r.now()
	for i := range r.want.Steps {
		if err := r.step(fmt.Sprintf("step %d: ", i+1), &r.want.Steps[i]); err != nil {
			r.wrong(fmt.Sprintf("step %d", i+1), "%v", err)
			return
		}
	}
	r.checkStats()
	r.checkRedis()
	if !r.waits() {
		r.rolled = r.windows(before) != r.windows(r.now())
	}
}

func (r *run) writeRules() {
	r.rules = filepath.Join(r.TempDir(), "ratelimit", "config")
	if err := os.MkdirAll(r.rules, 0o700); err != nil {
		r.Fatal(err)
	}
	for name, text := range r.want.files() {
		if err := os.WriteFile(filepath.Join(r.rules, name), []byte(text), 0o600); err != nil {
			r.Fatal(err)
		}
	}
}

func (r *run) env() []string {
	env := []string{
		"REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + r.redis.Addr, "CACHE_KEY_PREFIX=" + r.prefix,
		"RUNTIME_ROOT=" + filepath.Dir(filepath.Dir(r.rules)), "RUNTIME_SUBDIRECTORY=ratelimit",
		"STORE_TIMEOUT=" + patience.String(), // on a busy machine, too, the store decides
	}
	for name, value := range r.want.Env {
		env = append(env, name+"="+value)
	}
	return env
}

// checkRules has the check command look at the rules.
func (r *run) checkRules() {
	p := proctest.Start(r, r.env(), proctest.Binary(r), "check", r.rules)
	want := 0
	if *r.want.WantConfigError {
		want = 1
	}
	r.check("check", p.Wait(), want)
	if !strings.Contains(p.Output(), r.want.WantSaid) {
		r.wrong("check", "it doesn't say %q but:\n%s", r.want.WantSaid, p.Output())
	}
}

// start starts the service and waits until it has loaded the rules. It returns false if the load did not end
// as the case wants.
func (r *run) start() bool {
	args := []string{}
	if r.mode == compatMode {
		args = append(args, "--compat=envoyproxy-ratelimit")
	}
	r.starting.Lock()
	r.service = proctest.LaunchService(r, r.env(), args...)
	r.starting.Unlock()
	conn, err := grpc.NewClient(r.service.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = conn.Close() }) // the service may be gone
	r.rpc = ratelimit.NewRateLimitServiceClient(conn)
	failed := false
	proctest.Eventually(r, "the rules are loaded or refused", func() bool {
		list, err := readStats("http://" + r.service.Admin + "/stats")
		failed = list.of("ratelimit.service.config_load_error") > 0
		return err == nil && (failed || r.ready())
	})
	proctest.Eventually(r, fmt.Sprintf("the log says %q", r.want.WantSaid), func() bool { // what counts a failure may be ahead of it
		return strings.Contains(strings.ReplaceAll(r.service.Output(), `\"`, `"`), r.want.WantSaid)
	})
	want := r.want.WantConfigError != nil && *r.want.WantConfigError
	r.check("load", "failed: "+strconv.FormatBool(failed), "failed: "+strconv.FormatBool(want))
	return failed == want
}

func (r *run) ready() bool {
	answer, err := http.Get("http://" + r.service.HTTP + "/readyz")
	if err != nil {
		return false
	}
	_ = answer.Body.Close() // its status is enough
	return answer.StatusCode == http.StatusOK
}

// step asks what s asks, as often as it says, and checks the last answer.
func (r *run) step(part string, s *step) error {
	req, err := s.request()
	if err != nil {
		return err
	}
	end := r.await(s)
	var answer *ratelimit.RateLimitResponse
	for range max(1, s.Repeat) {
		ctx, cancel := context.WithTimeout(r.Context(), patience)
		answer, err = r.rpc.ShouldRateLimit(ctx, req)
		cancel()
		if s.WantError == nil && err != nil {
			return err
		}
	}
	if s.AtSeconds != nil && !r.now().Before(end) {
		r.rolled = true
	}
	if s.WantError != nil {
		return r.checkError(part, s, req, err)
	}
	r.checkStatuses(part, s, answer)
	if s.WantHeaders != nil {
		r.checkHeaders(part, s, answer)
	}
	if s.WantMetadata != nil {
		r.checkLike(part+"metadata", answer.GetDynamicMetadata().AsMap(), s.WantMetadata)
	}
	return nil
}

// await waits for the instant of s by the store's clock, and returns when its window ends.
func (r *run) await(s *step) time.Time {
	if s.AtSeconds == nil {
		return time.Time{}
	}
	unit := slices.Min(r.want.periods())
	if r.base.IsZero() {
		r.base = r.now().Truncate(unit).Add(unit)
	}
	at := r.base.Add(time.Duration(*s.AtSeconds) * time.Second)
	proctest.Eventually(r, "the store's clock is at the step", func() bool { return !r.now().Before(at) })
	return at.Truncate(unit).Add(unit)
}

// now is the store's clock.
func (r *run) now() time.Time {
	now, err := r.client.Time(r.Context()).Result()
	if err != nil {
		r.Fatal(err)
	}
	return now
}

// waits tells whether the case's steps have instants of their own.
func (r *run) waits() bool {
	return slices.ContainsFunc(r.want.Steps, func(s step) bool { return s.AtSeconds != nil })
}

// windows says in which window of each of its units the case is.
func (r *run) windows(now time.Time) string {
	var list []int64
	for _, period := range r.want.periods() {
		list = append(list, now.Unix()/int64(period/time.Second))
	}
	return fmt.Sprint(list)
}

// checkError checks the error of a call, and what /json says to the same.
func (r *run) checkError(part string, s *step, req *ratelimit.RateLimitRequest, err error) error {
	r.check(part+"code", status.Code(err).String(), s.WantError.Code)
	if text := status.Convert(err).Message(); !strings.HasPrefix(text, s.WantError.Message) {
		r.wrong(part+"message", "got %q, want %q", text, s.WantError.Message)
	}
	body, err := protojson.Marshal(req)
	if err != nil {
		return err
	}
	answer, err := http.Post("http://"+r.service.HTTP+"/json", "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	_ = answer.Body.Close() // its status is enough
	r.check(part+"http", answer.StatusCode, s.WantError.HTTP)
	return nil
}

func (r *run) checkStatuses(part string, s *step, answer *ratelimit.RateLimitResponse) {
	var codes, limits, wantLimits []string
	var remaining []uint32
	for _, st := range answer.GetStatuses() {
		codes = append(codes, st.GetCode().String())
		remaining = append(remaining, st.GetLimitRemaining())
		limit := "none"
		if st.GetCurrentLimit() != nil {
			limit = fmt.Sprint(st.GetCurrentLimit().GetRequestsPerUnit())
		}
		limits = append(limits, limit)
	}
	for _, l := range s.WantLimit {
		limit := "none"
		if l != nil {
			limit = fmt.Sprint(*l)
		}
		wantLimits = append(wantLimits, limit)
	}
	r.check(part+"codes", codes, s.Want)
	if s.WantRemaining != nil {
		r.check(part+"remaining", remaining, s.WantRemaining)
	}
	if s.WantLimit != nil {
		r.check(part+"limits", limits, wantLimits)
	}
	overall := s.WantOverall
	switch {
	case overall != "":
	case slices.Contains(s.Want, "OVER_LIMIT"):
		overall = "OVER_LIMIT"
	default:
		overall = "OK"
	}
	r.check(part+"overall", answer.GetOverallCode().String(), overall)
}

func (r *run) checkHeaders(part string, s *step, answer *ratelimit.RateLimitResponse) {
	headers, want := map[string]any{}, map[string]any{}
	for _, h := range answer.GetResponseHeadersToAdd() {
		headers[h.GetKey()] = h.GetValue()
	}
	for name, value := range s.WantHeaders {
		want[name] = value
	}
	r.check(part+"headers", len(answer.GetResponseHeadersToAdd()), len(want))
	r.checkLike(part+"headers", headers, want)
}

// checkLike compares what both become as JSON, but for the placeholders in want.
func (r *run) checkLike(part string, got, want map[string]any) {
	wantText, err := json.Marshal(want)
	if err != nil {
		r.Fatal(err)
	}
	var plain map[string]any
	if err := json.Unmarshal(wantText, &plain); err != nil {
		r.Fatal(err)
	}
	r.check(part, masked(got, plain), any(plain))
}

// masked is got with a placeholder of want in the place of what it stands for.
func masked(got, want any) any {
	switch want := want.(type) {
	case map[string]any:
		return maskedMap(got, want)
	case []any:
		list, ok := got.([]any)
		if !ok || len(list) != len(want) {
			return got
		}
		for i := range list {
			list[i] = masked(list[i], want[i])
		}
		return list
	case string:
		text, ok := got.(string)
		seconds, err := strconv.Atoi(text)
		if ok && (want == "any_text" && text != "" || want == "seconds" && err == nil && seconds > 0) {
			return want
		}
	}
	return got
}

func maskedMap(got any, want map[string]any) any {
	m, ok := got.(map[string]any)
	if !ok {
		return got
	}
	for k, v := range m {
		m[k] = masked(v, want[k])
	}
	return m
}

func (r *run) checkStats() {
	list, err := readStats("http://" + r.service.Admin + "/stats")
	if err != nil {
		r.Fatal(err)
	}
	for name, want := range r.want.WantStats {
		r.check(name, list.of(name), want)
	}
}

func (r *run) checkRedis() {
	if r.want.WantRedis == nil {
		return
	}
	list, err := counts(r.Context(), r.client, r.prefix)
	if err != nil {
		r.wrong("redis", "%v", err)
	}
	for name, want := range r.want.WantRedis {
		r.check("redis "+name, list[name], want)
	}
}
