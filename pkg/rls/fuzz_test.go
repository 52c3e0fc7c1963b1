package rls_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

func seeds() []*ratelimit.RateLimitRequest {
	several := request(descriptor("three=x"), costing(descriptor("none=y"), 1<<63), givingBack(descriptor("greedy=x"), 7))
	several.HitsAddend = 1<<32 - 1
	return []*ratelimit.RateLimitRequest{
		{}, request(), request(descriptor("")), several,
		request(limited(descriptor("three=x"), 1, typev3.RateLimitUnit(-1))),
		request(limited(descriptor("shadow=x a=b"), 1, typev3.RateLimitUnit_YEAR)),
	}
}

// checkAnswer is what holds for every answer, whatever the request.
func checkAnswer(t *testing.T, req *ratelimit.RateLimitRequest, answer *ratelimit.RateLimitResponse, err error) {
	t.Helper()
	if err != nil {
		if status.Code(err) != codes.InvalidArgument {
			t.Errorf("the error is %v", err)
		}
		return
	}
	if len(answer.GetStatuses()) != len(req.GetDescriptors()) {
		t.Errorf("%d statuses for %d descriptors", len(answer.GetStatuses()), len(req.GetDescriptors()))
	}
	over := false
	for _, st := range answer.GetStatuses() {
		if st.GetCode() != ratelimit.RateLimitResponse_OVER_LIMIT {
			continue
		}
		over = true
		if st.GetLimitRemaining() != 0 || st.GetDurationUntilReset().GetSeconds() < 1 {
			t.Errorf("a denied status is %v", st)
		}
	}
	if answer.GetOverallCode() == ratelimit.RateLimitResponse_OVER_LIMIT && !over {
		t.Error("the request is refused and no descriptor is")
	}
}

func FuzzRequest(f *testing.F) {
	for _, req := range seeds() {
		wire, err := proto.Marshal(req)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(wire)
	}
	native := newService(f, rules, rls.Options{DynamicMetadata: true, Headers: rls.HeaderOptions{Limit: "L"}})
	compat := newService(f, rules, rls.Options{Compat: true})
	f.Fuzz(func(t *testing.T, wire []byte) {
		var req ratelimit.RateLimitRequest
		if proto.Unmarshal(wire, &req) != nil {
			return
		}
		answer, err := native.ShouldRateLimit(context.Background(), &req)
		checkAnswer(t, &req, answer, err)
		if _, err := proto.Marshal(answer); err != nil {
			t.Errorf("the answer can't be sent: %v", err)
		}
		_, _ = compat.ShouldRateLimit(context.Background(), &req) // it must not crash
	})
}

func FuzzJSON(f *testing.F) {
	for _, req := range seeds() {
		body, err := protojson.Marshal(req)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(body))
	}
	f.Add("null")
	f.Add("")
	handler := newService(f, rules, rls.Options{}).JSON()
	f.Fuzz(func(t *testing.T, body string) {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/json", strings.NewReader(body)))
		switch w.Code {
		case http.StatusOK, http.StatusTooManyRequests, http.StatusBadRequest, http.StatusRequestEntityTooLarge:
		default:
			t.Errorf("status %d: %s", w.Code, w.Body)
		}
	})
}

func TestJSON(t *testing.T) {
	handler := newService(t, rules, rls.Options{}).JSON()
	for _, c := range []struct {
		body string
		code int
		want string
	}{
		{`{"domain":"d","descriptors":[{"entries":[{"key":"three","value":"x"}]}]}`, 200, `"limitRemaining":2`},
		{`{"domain":"d","descriptors":[{"entries":[{"key":"none","value":"x"}], "hits_addend": "0"}]}`, 429, `"OVER_LIMIT"`},
		{`{"domain":""}`, 400, "rate limit domain must not be empty"},
		{`{"unknown": 1}`, 400, "not a RateLimitRequest"},
		{"", 400, "not a RateLimitRequest"},
		{"null", 400, "not a RateLimitRequest"},
		{strings.Repeat(" ", 5<<20), 413, "the request has more than 262144 bytes"},
	} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/json", strings.NewReader(c.body)))
		body := strings.ReplaceAll(w.Body.String(), ": ", ":")
		if w.Code != c.code || !strings.Contains(body, strings.ReplaceAll(c.want, ": ", ":")) {
			t.Errorf("%.80s: %d %s", c.body, w.Code, body)
		}
	}
}
