package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// scenario is a script of requests and what Envoy answers, with the rules and the route that it needs.
type scenario struct {
	name   string // a sentence
	domain string // unique
	rules  string // the domain's descriptors; "" is no file
	limits string // the route's rate limits
	// service is "" for one with the defaults.
	service string
	// calls is how many calls Envoy makes for each request, where one of them comes after the answer.
	calls int
	// script has a line for each request: its headers, an arrow, the answer's status and headers, as in
	//
	//	x-user: ann -> 200  x-ratelimit-remaining: 2  x-ratelimit-reset: 1..3600  no retry-after
	//
	// with two spaces between the parts.
	script string
}

func (s *scenario) run(t *testing.T, g *gateway, service *proctest.Service) {
	withinOneWindow(t)
	for i, line := range strings.Split(strings.TrimSpace(s.script), "\n") {
		s.awaitCalls(t, service, s.calls*i)
		left, right, _ := strings.Cut(line, "->")
		got := g.get(t, request{listener: s.listener(), path: s.domain, headers: parts(left)})
		for _, problem := range got.differsFrom(parts(right)) {
			t.Errorf("request %d, %s: %s", i+1, line, problem)
		}
	}
}

func (s *scenario) listener() string {
	if s.service == "" {
		return "default"
	}
	return s.service
}

// withinOneWindow waits for the next quarter of an hour if that is near: a window that ends during a script
// starts its count anew.
func withinOneWindow(t *testing.T) {
	t.Helper()
	const quarter, script = 15 * time.Minute, 10 * time.Second
	border := time.Now().Add(script).Truncate(quarter) // in the past, unless the next one is near
	proctest.Eventually(t, "the next quarter of an hour begins", func() bool {
		return time.Now().After(border)
	})
}

func (s *scenario) awaitCalls(t *testing.T, service *proctest.Service, want int) {
	t.Helper()
	domain := fmt.Sprintf("domain=%q", s.domain)
	proctest.Eventually(t, fmt.Sprintf("Envoy has made %d calls", want), func() bool {
		return service.Metric("envoy_rls_requests_total", domain) >= float64(want)
	})
}

func parts(text string) []string {
	var list []string
	for p := range strings.SplitSeq(text, "  ") {
		if p = strings.TrimSpace(p); p != "" {
			list = append(list, p)
		}
	}
	return list
}

// differsFrom compares with a status and headers as in a script.
func (a answer) differsFrom(want []string) []string {
	var problems []string
	if got := strconv.Itoa(a.status); got != want[0] {
		problems = append(problems, "status "+got)
	}
	for _, w := range want[1:] {
		if absent, found := strings.CutPrefix(w, "no "); found {
			w = absent + ": "
		}
		name, value, _ := strings.Cut(w, ": ")
		if got := strings.Join(a.header.Values(name), ", "); !matches(got, value) {
			problems = append(problems, fmt.Sprintf("%s is %q", name, got))
		}
	}
	return problems
}

// matches compares with a value, or with a range as in 1..3600.
func matches(got, want string) bool {
	var low, high int
	if n, _ := fmt.Sscanf(want, "%d..%d", &low, &high); n != 2 {
		return got == want
	}
	n, err := strconv.Atoi(got)
	return err == nil && n >= low && n <= high
}
