package storetest

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// start is when every script begins: 10:00 of a Monday, an edge of minutes and hours, and not of days.
var start = time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)

// runScripts runs testdata/*.txt. A script's commands are
//
//	limits            a line each: name, algorithm (or named_window), requests, period, burst if it is a bucket
//	decide            a line a hit: counter, limit, then any of cost=N group=N quota shadow
//	                  denied stop alone (its charge; together if none) passfull
//	advance 5m        or back, with a minus
func runScripts(t *testing.T, open Open) {
	_, file, _, _ := runtime.Caller(0)
	datadriven.Walk(t, filepath.Join(filepath.Dir(file), "testdata"), func(t *testing.T, path string) {
		s := &script{clock: &Clock{}, limits: map[string]*limiter.Limit{}}
		s.clock.Set(start)
		s.store = open(t, s.clock)
		datadriven.RunTest(t, path, s.run)
	})
}

type script struct {
	clock  *Clock
	store  limiter.Store
	limits map[string]*limiter.Limit
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	switch d.Cmd {
	case "limits":
		for _, line := range strings.Split(d.Input, "\n") {
			if err := s.limit(strings.Fields(line)); err != nil {
				d.Fatalf(t, "%s: %v", line, err)
			}
		}
		return ""
	case "advance":
		by, err := time.ParseDuration(d.CmdArgs[0].Key)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		s.clock.Advance(by)
		return ""
	case "decide":
		return s.decide(t, d)
	}
	d.Fatalf(t, "unknown command %s", d.Cmd)
	return ""
}

func (s *script) limit(words []string) error {
	algorithm, err := limiter.ParseAlgorithm(words[1])
	if words[1] == "named_window" {
		algorithm, err = limiter.NamedWindow, nil
	}
	if err != nil {
		return err
	}
	requests, err := strconv.ParseUint(words[2], 10, 32)
	if err != nil {
		return err
	}
	period, err := time.ParseDuration(words[3])
	if err != nil {
		return err
	}
	l := &limiter.Limit{Algorithm: algorithm, Requests: uint32(requests), Period: period}
	if len(words) > 4 {
		burst, err := strconv.ParseUint(words[4], 10, 32)
		if err != nil {
			return err
		}
		l.Burst = uint32(burst)
	}
	s.limits[words[0]] = l
	return l.Validate()
}

func (s *script) decide(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	b := &limiter.Batch{Flow: "script"}
	lines := strings.Split(d.Input, "\n")
	for i, line := range lines {
		h, err := s.hit(strings.Fields(line), uint16(i))
		if err != nil {
			d.Fatalf(t, "%s: %v", line, err)
		}
		b.Hits = append(b.Hits, h)
	}
	b.Decisions = make([]limiter.Decision, len(b.Hits))
	if err := s.store.Decide(context.Background(), b); err != nil {
		d.Fatalf(t, "%v", err)
	}
	var out strings.Builder
	fmt.Fprintf(&out, "admitted: %t\n", b.Allowed)
	for i, got := range b.Decisions {
		fmt.Fprintf(&out, "%s: %s\n", strings.Fields(lines[i])[0], inWords(got, s.clock.Micros()))
	}
	return out.String()
}

func (s *script) hit(words []string, group uint16) (limiter.Hit, error) {
	h := limiter.Hit{Key: words[0], Limit: s.limits[words[1]], Cost: 1, Charge: limiter.Together, Group: group}
	if h.Limit == nil {
		return h, fmt.Errorf("no limit %s", words[1])
	}
	for _, w := range words[2:] {
		name, value, _ := strings.Cut(w, "=")
		n, err := strconv.ParseInt("0"+strings.TrimPrefix(value, "-"), 10, 64)
		if err != nil {
			return h, err
		}
		switch name {
		case "cost":
			h.Cost = n
			if strings.HasPrefix(value, "-") {
				h.Cost = -n
			}
		case "group":
			h.Group = uint16(n)
		case "quota":
			h.Role = limiter.Quota
		case "shadow":
			h.Role = limiter.Shadow
		case "denied":
			h.Charge = limiter.ChargeDenied
		case "stop":
			h.Charge = limiter.Together | limiter.ChargeDenied
		case "alone":
			h.Charge = 0
		case "passfull":
			h.PassFull = true
		default:
			return h, fmt.Errorf("unknown word %s", w)
		}
	}
	return h, nil
}

func inWords(d limiter.Decision, now int64) string {
	words := []string{"denied", "free", fmt.Sprintf("room=%d", d.Room)}
	if d.Allowed {
		words[0] = "allowed"
	}
	if d.Charged {
		words[1] = "charged"
	}
	if d.RetryAfter != 0 {
		words = append(words, fmt.Sprintf("retry=%s", d.RetryAfter))
	}
	words = append(words, fmt.Sprintf("reset=%s", d.ResetAfter))
	if d.State != limiter.Decided || d.At != now {
		words = append(words, fmt.Sprintf("state=%d at=%d", d.State, d.At))
	}
	return strings.Join(words, " ")
}
