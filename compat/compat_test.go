// Package compat holds envoy-rls to the behaviour of envoyproxy/ratelimit, whose place it can take: the cases
// of testdata/compat.yaml, which were all seen on that service, run against the real program.
package compat

import (
	"fmt"
	"os"
	"testing"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

func TestMain(m *testing.M) { os.Exit(proctest.Main(m)) }

func TestCasesOfTheReplacedServiceHold(t *testing.T) {
	redis := proctest.StartRedis(t)
	s := &site{redis: redis, client: redis.Client()}
	better := readBetter(t)
	for i, c := range readCases(t) {
		b := better[c.Name]
		if b == nil {
			t.Run(c.Name, func(t *testing.T) {
				t.Parallel()
				s.settle(&run{T: t, want: c, mode: compatMode, prefix: fmt.Sprint("case", i)})
			})
			continue
		}
		for _, mode := range []string{compatMode, native} {
			t.Run(c.Name+"/"+mode, func(t *testing.T) {
				t.Parallel()
				s.settle(&run{T: t, want: b.in(mode, c), mode: mode, prefix: fmt.Sprint("case", i, mode)})
			})
		}
	}
}

// attempts is how often a case is run whose windows end meanwhile.
const attempts = 20

// settle runs a case until no window ends meanwhile, and holds it to what was expected of it.
func (s *site) settle(r *run) {
	for attempt := range attempts {
		again := *r
		again.site, again.prefix = s, fmt.Sprintf("%s-%d:", r.prefix, attempt)
		again.do()
		if !again.rolled {
			again.judge()
			return
		}
		again.service.Kill()
	}
	r.Errorf("a window ended during each of %d runs", attempts)
}

// judge reports the problems.
func (r *run) judge() {
	for _, p := range r.problems {
		r.Errorf("%s: %s", p.part, p.text)
	}
}

func TestTheTablesAreAboutTheCases(t *testing.T) {
	cases := map[string]behaviour{}
	for _, c := range readCases(t) {
		cases[c.Name] = c
	}
	const total = 110
	if len(cases) != total {
		t.Errorf("compat.yaml has %d different names, want %d", len(cases), total)
	}
	better := readBetter(t)
	for name, c := range cases {
		if c.needsBetter() != (better[name] != nil) {
			t.Errorf("%s is a %s, and better.yaml has it: %t", name, c.Compat, better[name] != nil)
		}
	}
	for name, b := range better {
		if _, ok := cases[name]; !ok || b.Why == "" {
			t.Errorf("better.yaml has %s without a case or without saying why", name)
		}
	}
}
