package main

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

// TestATimeoutThatIsTooShortIsToldOf has an Envoy without a timeout, hence with one of 20 ms, and a Redis that is further away.
func TestATimeoutThatIsTooShortIsToldOf(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		says string
		late bool
	}{
		"answers come in time, without Redis": {nil, `mend="it took longer than --store-timeout (STORE_TIMEOUT), by default half of Envoy's timeout, of 20ms`, false},
		"answers wait for Redis":              {[]string{"--store-timeout=1s"}, `msg="an answer came too late, Envoy's failure mode decides" domain=demo granted=`, true},
	} {
		t.Run(name, func(t *testing.T) {
			proxy := proctest.StartProxy(t, proctest.StartRedis(t).Addr, 1)
			s := proctest.StartService(t, append(c.args, "--rules=../../config", "--redis="+proxy.URL())...)
			proxy.Set(proctest.Faults{Late: 1, Delay: 40 * time.Millisecond})
			request := startEnvoy(t, "                      timeout: 0.05s\n", "", s.GRPC)
			proctest.Eventually(t, "the log says "+c.says, func() bool {
				request()
				return strings.Contains(s.Output(), c.says)
			})
			if n := s.Metric("envoy_rls_late_answers_total"); c.late && n == 0 {
				t.Error("no answer is counted as late")
			}
			if n := s.Metric("envoy_rls_request_deadline_seconds_bucket", `le="0.02"`); n == 0 {
				t.Error("no call of up to 20 ms is counted")
			}
			s.End()
			if n := strings.Count(s.Output(), "an answer came too late"); c.late && n != 1 {
				t.Errorf("%d lines were written", n)
			}
		})
	}
}

func TestACallerWhoLeavesByItselfIsNotLate(t *testing.T) {
	for name, c := range map[string]struct {
		call rls.Answered
		told bool
	}{
		"in time":                    {rls.Answered{Granted: 20 * time.Millisecond, Took: 19 * time.Millisecond}, false},
		"left at its deadline":       {rls.Answered{Granted: 20 * time.Millisecond, Took: 19 * time.Millisecond, Late: true}, true},
		"left long after it":         {rls.Answered{Granted: 20 * time.Millisecond, Took: time.Second, Late: true}, true},
		"left soon":                  {rls.Answered{Granted: 20 * time.Millisecond, Took: 2 * time.Millisecond, Late: true}, false},
		"left, and had all the time": {rls.Answered{Took: time.Second, Late: true}, false},
	} {
		var text strings.Builder
		l := lateLog{log: slog.New(slog.NewTextHandler(&text, nil))}
		l.note(&c.call)
		l.note(&c.call)
		if n := strings.Count(text.String(), "came too late"); n > 1 || n == 1 != c.told {
			t.Errorf("%s: %d lines", name, n)
		}
	}
}
