package rls_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/fallback"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
	"github.com/envoy-rls/envoy-rls/pkg/memstore"
	"github.com/envoy-rls/envoy-rls/pkg/redisstore"
	"github.com/envoy-rls/envoy-rls/pkg/rls"
	"github.com/envoy-rls/envoy-rls/pkg/storetest"
)

// TestTheTablesOfTheExamplesAreTrue runs docs/examples.md, whose beginning says how to read its tables.
func TestTheTablesOfTheExamplesAreTrue(t *testing.T) {
	text, err := os.ReadFile("../../docs/examples.md")
	if err != nil {
		t.Fatal(err)
	}
	var shown []string
	for _, section := range strings.Split(string(text), "\n## ")[1:] {
		e := readExample(t, section)
		shown = append(shown, e.file)
		t.Run(e.file, e.run)
	}
	files, err := filepath.Glob("../../config/examples/*")
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range files {
		files[i] = filepath.Base(name)
	}
	if slices.Sort(shown); !slices.Equal(shown, files) {
		t.Errorf("the files are\n%q\nthe tables are for\n%q", files, shown)
	}
}

// example is a rule file and what its requests get, by it and the rules of others that the document shows.
type example struct {
	file, rules, others string
	rows                []exampleRow
}

type exampleRow struct{ when, sends, gets string }

var (
	exampleLink = regexp.MustCompile(`\]\(\.\./config/examples/([^)]+)\)`)
	shownRules  = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$")
	tableRow    = regexp.MustCompile("(?m)^\\|(?: (.+?))? \\| `(.+?)` \\| (.+) \\|$")
)

// readExample reads a section: a link to the file, and a table behind its two lines of head.
func readExample(t *testing.T, section string) *example {
	t.Helper()
	link := exampleLink.FindStringSubmatch(section)
	if link == nil {
		t.Fatalf("a section without a rule file: %s", section)
	}
	rules, err := os.ReadFile(filepath.Join("../../config/examples", link[1]))
	if err != nil {
		t.Fatal(err)
	}
	e := &example{file: link[1], rules: string(rules)}
	if others := shownRules.FindStringSubmatch(section); others != nil {
		e.others = others[1]
	}
	for _, m := range tableRow.FindAllStringSubmatch(section, -1) {
		e.rows = append(e.rows, exampleRow{m[1], m[2], m[3]})
	}
	if lines := strings.Count(section, "\n|"); len(e.rows) == 0 || lines != len(e.rows)+2 {
		t.Fatalf("%s: of a table of %d lines %d are rows that can be read", e.file, lines, len(e.rows))
	}
	return e
}

func (e *example) run(t *testing.T) {
	r := &exampleRun{example: e, clock: &storetest.Clock{}}
	r.clock.Set(time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC))
	r.store = memstore.New(memstore.Options{Now: r.clock.Now})
	r.service = r.serve(t, r.store, e.rules)
	for _, row := range e.rows {
		o := r.row(t, row)
		if problem := o.differs(row.gets); problem != "" {
			t.Errorf("| %s | %s | %s |\n%s", row.when, row.sends, row.gets, problem)
		}
	}
}

// exampleRun is an example under way.
type exampleRun struct {
	*example
	clock   *storetest.Clock
	store   *memstore.Store
	service *rls.Service

	// What the present request is told of:
	decided   []rls.Decided
	unmatched bool
}

func (r *exampleRun) serve(t *testing.T, store limiter.Store, rules string) *rls.Service {
	t.Helper()
	s := rls.New(store, rls.Options{Now: r.clock.Now, Events: rls.Events{
		Decided:   func(d rls.Decided) { r.decided = append(r.decided, d) },
		Unmatched: func(rls.Unmatched) { r.unmatched = true },
	}})
	files := []descriptors.File{{Name: r.file, Data: []byte(rules)}}
	if r.others != "" {
		files = append(files, descriptors.File{Name: "others.yaml", Data: []byte(r.others)})
	}
	compiled, problems := descriptors.Compile(files, descriptors.Options{})
	if descriptors.HasErrors(problems) {
		t.Fatal(problems)
	}
	s.SetRules(compiled)
	return s
}

func (r *exampleRun) row(t *testing.T, row exampleRow) *outcome {
	t.Helper()
	service, load := r.when(t, row.when), parseLoad(t, row.sends)
	o := &outcome{count: map[string]int{}}
	for i := range load.requests {
		if i > 0 {
			r.clock.Advance(load.every)
		}
		r.ask(t, service, load.request(service, i), o)
	}
	return o
}

// when reads the first column, and returns the service that its row asks: over the same counters, but for one
// whose Redis is away.
func (r *exampleRun) when(t *testing.T, text string) *rls.Service {
	t.Helper()
	later, isLater := strings.CutSuffix(text, " later")
	left, isEdit := strings.CutPrefix(text, "without ")
	switch {
	case isLater:
		r.clock.Advance(duration(t, later))
	case isEdit:
		left = strings.Trim(left, "`")
		if strings.Count(r.rules, left) != 1 {
			t.Fatalf("the rules don't hold %s once", left)
		}
		return r.serve(t, r.store, strings.Replace(r.rules, left, "", 1))
	case text == "Redis away":
		store, err := redisstore.Open(redisstore.Options{Address: "127.0.0.1:1", Timeout: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		return r.serve(t, fallback.New(store, fallback.Options{Now: r.clock.Now}), r.rules)
	case text != "":
		t.Fatalf("when is %q?", text)
	}
	return r.service
}

func duration(t *testing.T, text string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// load is the second column: requests, or groups of them that a # tells apart.
type load struct {
	requests    int
	group       int // how many have the same #
	descriptors []string
	cost        *uint64
	every       time.Duration
}

var (
	loadText       = regexp.MustCompile(`^(?:(\d+) × )?(?:(\d+) × )?(\(.*\))(?: cost (\d+))?(?: every (\S+))?$`)
	descriptorText = regexp.MustCompile(`\(([^()]*)\)`)
)

func parseLoad(t *testing.T, text string) *load {
	t.Helper()
	m := loadText.FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("what is sent by %q?", text)
	}
	number := func(text string) int {
		if text == "" {
			return 1
		}
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	l := &load{requests: number(m[1]) * number(m[2]), group: number(m[2])}
	for _, d := range descriptorText.FindAllStringSubmatch(m[3], -1) {
		l.descriptors = append(l.descriptors, strings.ReplaceAll(d[1], ", ", " "))
	}
	if m[4] != "" {
		cost := uint64(number(m[4]))
		l.cost = &cost
	}
	if m[5] != "" {
		l.every = duration(t, m[5])
	}
	return l
}

// request is the one of index i.
func (l *load) request(s *rls.Service, i int) *ratelimit.RateLimitRequest {
	req := &ratelimit.RateLimitRequest{Domain: s.Rules().Sorted()[0].Name}
	for _, text := range l.descriptors {
		d := descriptor(strings.ReplaceAll(text, "#", strconv.Itoa(i/l.group+1)))
		if l.cost != nil {
			d = costing(d, *l.cost)
		}
		req.Descriptors = append(req.Descriptors, d)
	}
	return req
}

// ask adds what becomes of a request to o.
func (r *exampleRun) ask(t *testing.T, s *rls.Service, req *ratelimit.RateLimitRequest, o *outcome) {
	t.Helper()
	r.decided, r.unmatched = r.decided[:0], false
	answer, err := s.ShouldRateLimit(context.Background(), req)
	if err != nil {
		t.Fatal(err)
	}
	o.add(answer, r.decided)
	if r.unmatched {
		o.note(whyUnmatched(s.Rules(), req))
	}
}

// whyUnmatched is what `envoy-rls call` says of the first descriptor without a rule.
func whyUnmatched(rules *descriptors.Ruleset, req *ratelimit.RateLimitRequest) string {
	domain := rules.Domain(req.GetDomain())
	for _, d := range req.GetDescriptors() {
		var entries []descriptors.Entry
		for _, e := range d.GetEntries() {
			entries = append(entries, descriptors.Entry{Key: e.GetKey(), Value: e.GetValue()})
		}
		domain.Prepare(entries)
		if domain.Match(entries) == nil {
			_, why, _ := strings.Cut(rules.Unmatched(domain.Name, entries), " in domain "+domain.Name)
			return "no rule" + why
		}
	}
	return "no rule, they say, but there is one"
}
