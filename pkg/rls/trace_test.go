package rls_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
	"github.com/envoy-rls/envoy-rls/pkg/redisstore"
	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

// traces are what Options.Trace was told of, in words.
type traces struct{ ended []string }

// mark is a key of contexts.
type mark struct{}

func (tr *traces) begin(ctx context.Context) (context.Context, func(rls.Traced)) {
	return context.WithValue(ctx, mark{}, "of the trace"), func(t rls.Traced) {
		tr.ended = append(tr.ended, fmt.Sprintf("%s of %s, %d, over %t by %s, %s %v",
			t.Code, t.Domain, t.Descriptors, t.OverLimit, t.DeniedBy, t.StoreFailure, t.Policies))
	}
}

func TestTracesAreToldWhatBecameOfACall(t *testing.T) {
	for _, c := range []struct {
		req  *ratelimit.RateLimitRequest
		want string
	}{
		{request(descriptor("three=x"), descriptor("other=x")), "OK of d, 2, over false by ,  []"},
		{request(descriptor("three=x"), descriptor("none=x")), "OK of d, 2, over true by d.none,  []"},
		{request(limited(descriptor("other=x"), 0, typev3.RateLimitUnit_HOUR)), "OK of d, 1, over true by override,  []"},
		{request(costing(descriptor("shadow=x"), 9)), "OK of d, 1, over false by ,  []"},
		{&ratelimit.RateLimitRequest{Domain: "a client's", Descriptors: request(descriptor("a=b")).GetDescriptors()}, "OK of , 1, over false by ,  []"},
		{request(), "InvalidArgument of , 0, over false by ,  []"},
	} {
		tr := &traces{}
		_ = ask(t, newService(t, rules, rls.Options{Trace: tr.begin}), c.req)
		if len(tr.ended) != 1 || tr.ended[0] != c.want {
			t.Errorf("%v\n got %q\nwant %s", c.req, tr.ended, c.want)
		}
	}
}

func TestTracesAreToldOfTheStoresFailure(t *testing.T) {
	store, err := redisstore.Open(redisstore.Options{Address: "127.0.0.1:1", Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	for policy, want := range map[limiter.FailurePolicy]string{
		limiter.FailAllow: "OK of d, 1, over false by , connection [allow]",
		limiter.FailDeny:  "OK of d, 1, over true by d.three, connection [deny]",
		limiter.FailError: "Unavailable of d, 1, over false by , connection [error]",
	} {
		tr := &traces{}
		o := rls.Options{Trace: tr.begin, Defaults: descriptors.Defaults{OnStoreFailure: policy}}
		_ = ask(t, serviceOver(t, store, rules, o), request(descriptor("three=x")))
		if len(tr.ended) != 1 || tr.ended[0] != want {
			t.Errorf("got %q\nwant %s", tr.ended, want)
		}
	}
}

// faulty is a store with a fault, which keeps the context that it got.
type faulty struct{ got context.Context }

func (f *faulty) Decide(ctx context.Context, _ *limiter.Batch) error {
	f.got = ctx
	panic("a fault")
}

func TestATraceIsEndedByAFaultToo(t *testing.T) {
	tr, store := &traces{}, &faulty{}
	s := serviceOver(t, store, rules, rls.Options{Trace: tr.begin})
	func() {
		defer func() { _ = recover() }()
		_ = ask(t, s, request(descriptor("three=x")))
	}()
	if want := "Internal of , 1, over false by ,  []"; len(tr.ended) != 1 || tr.ended[0] != want {
		t.Errorf("got %q\nwant %s", tr.ended, want)
	}
	if store.got == nil || store.got.Value(mark{}) == nil {
		t.Error("the store did not get the trace's context")
	}
}
