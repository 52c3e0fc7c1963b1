package main

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// TestAClientOfJSONThatLeavesIsNotWaitedFor has a Redis that stands still, and a service that would wait for a minute.
func TestAClientOfJSONThatLeavesIsNotWaitedFor(t *testing.T) {
	redis := proctest.StartRedis(t)
	s := proctest.StartService(t, "--rules="+writeRules(t), "--redis="+redis.URL(), "--store-timeout=1m", "--http-json")
	inFlight := func() float64 { return s.Metric("envoy_rls_inflight_requests") }
	redis.Signal(syscall.SIGSTOP)
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		body := strings.NewReader(`{"domain": "shop", "descriptors": [{"entries": [{"key": "user", "value": "ann"}]}]}`)
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.HTTP+"/json", body)
		if err == nil {
			_, err = http.DefaultClient.Do(req) //nolint:bodyclose // there is no answer
		}
		left <- err
	}()
	proctest.Eventually(t, "the call waits", func() bool { return inFlight() == 1 })
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("the client ended with %v", err)
	}
	proctest.Eventually(t, "the call has ended", func() bool { return inFlight() == 0 })
	redis.Signal(syscall.SIGCONT)
}
