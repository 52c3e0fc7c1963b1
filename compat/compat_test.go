// Package compat holds envoy-rls to the behaviour of envoyproxy/ratelimit, whose place it can take: the cases
// of testdata/compat.yaml, which were all seen on that service, run against the real program.
package compat

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

func TestMain(m *testing.M) { os.Exit(proctest.Main(m)) }

// What cases wait for.
const (
	overrides = "counters for limits that requests bring along"
	quotaMode = "QUOTA_MODE"
)

// waiting are the parts of cases that don't hold yet. All else of these cases does. A part is one thing that a
// case wants, by the end of its name in a run's problems. Whoever brings what it waits for takes the line out.
var waiting = []struct{ name, part, thing string }{
	{"override_new_number_keeps_the_counter", ".total_hits", overrides},
	{"quota_global_all_over", "step 2: overall", quotaMode},
}

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
const attempts = 5

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

// judge reports problems, other than those of parts that wait for something, and such parts without a problem.
func (r *run) judge() {
	excused := make([]bool, len(r.problems))
	for _, w := range waiting {
		if w.name != r.want.Name {
			continue
		}
		found := false
		for i, p := range r.problems {
			if strings.HasSuffix(p.part, w.part) {
				excused[i], found = true, true
			}
		}
		if !found {
			r.Errorf("%s is as it should be, so the table of what waits for %s must lose it", w.part, w.thing)
		}
	}
	for i, p := range r.problems {
		if !excused[i] {
			r.Errorf("%s: %s", p.part, p.text)
		}
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
	for _, w := range waiting {
		if _, ok := cases[w.name]; !ok {
			t.Errorf("%s waits and is no case", w.name)
		}
	}
}
