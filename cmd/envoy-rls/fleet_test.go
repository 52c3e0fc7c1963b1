package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// nobody is a place where no replica is.
const nobody = "127.0.0.1:1"

// places are the crew's replicas, and others, as --fleet has them.
func (f *crew) places(others ...string) string {
	list := others
	for _, s := range f.replicas {
		list = append(list, s.Admin)
	}
	return "--fleet=" + strings.Join(list, ",")
}

// commanded is what a command of the program came to.
type commanded struct {
	code     int
	out, err string
}

// tooLate is said by what gives up after 2 s, which a busy machine may take.
const tooLate = "deadline exceeded"

// command runs a command, and again if a busy machine has held up a replica for longer than commands wait.
func command(args ...string) (c commanded) {
	for range 3 {
		var out, complaints bytes.Buffer
		code := run(append([]string{"envoy-rls"}, args...), streams{&out, &complaints})
		c = commanded{code, out.String(), complaints.String()}
		if !strings.Contains(c.out+c.err, tooLate) {
			break
		}
	}
	return c
}

// awayIsTold checks that a command says that nobody did not answer.
func (c commanded) awayIsTold(t *testing.T) {
	t.Helper()
	const want = "envoy-rls: 127.0.0.1:1: dial tcp 127.0.0.1:1: connect: connection refused; is it a replica's admin port, which --admin, --fleet or --from names?\n"
	if c.err != want {
		t.Errorf("it complains of %q, want %q", c.err, want)
	}
}

func TestAFleetOverOneRedisIsAskedForItsCountersThroughOneReplica(t *testing.T) {
	f := startCrew(t, 3, "--redis="+proctest.StartRedis(t).URL())
	t.Setenv("ENVOY_RLS_TOKEN", adminToken)
	last := f.replicas[2]
	proctest.Eventually(t, "the last replica knows the others", func() bool { return last.Metric("envoy_rls_replicas") == 3 })
	for i := range f.replicas {
		if f.admits(i, "one") != (i == 0) {
			t.Fatalf("replica %d counts by itself", i)
		}
	}
	for _, args := range [][]string{{"list", "--rule=shop.one"}, {"get", "one=the same"}} {
		got := command(append([]string{"counters", args[0], "--domain=shop", f.places()}, args[1:]...)...)
		want := `^DESCRIPTOR +RULE +LIMIT +USED +LEFT +RESET\none="the same" +shop.one +1 per year +1 +0 +\S+\n$`
		if got.code != exitOK || got.err != "" || !regexp.MustCompile(want).MatchString(got.out) {
			t.Errorf("%q: %+v", args, got)
		}
	}
	reset := command("counters", "reset", "--yes", "--domain=shop", "--rule=shop.one", f.places(nobody))
	if reset.code != exitError || reset.out != "1 counter reset, and honoured by all replicas within 2s\n" {
		t.Errorf("a reset came to %+v", reset)
	}
	reset.awayIsTold(t)
	proctest.Eventually(t, "a replica that has refused admits", func() bool { return f.admits(2, "one") })
	lines := func() (n int) {
		for _, s := range f.replicas {
			n += strings.Count(s.Output(), `msg="counters reset"`)
		}
		return n
	}
	proctest.Eventually(t, "a replica tells that it reset counters", func() bool { return lines() > 0 })
	if n := lines(); n != 1 {
		t.Errorf("%d replicas reset counters", n)
	}
}

func TestAFleetInMemoryHasTheCountersOfEachReplica(t *testing.T) {
	f := startCrew(t, 3)
	t.Setenv("ENVOY_RLS_TOKEN", adminToken)
	f.admits(0, "one")
	f.admits(1, "one")
	got := command("counters", "get", "--domain=shop", "one=the same", f.places())
	for i, s := range f.replicas {
		used := []int{1, 1, 0}[i]
		want := fmt.Sprintf(`\none="the same" +shop.one +1 per year +%d +%d +\S+ +%s\n`, used, 1-used, s.Admin)
		if got.code != exitOK || !regexp.MustCompile(want).MatchString(got.out) {
			t.Errorf("counters get came to %d\n%s%s, without %s", got.code, got.out, got.err, want)
		}
	}
	got = command("counters", "list", "--domain=shop", "--rule=shop.one", f.places(nobody))
	if strings.Count(got.out, `one="the same"`) != 2 || strings.Contains(got.out, f.replicas[2].Admin) || got.code != exitError {
		t.Errorf("counters list came to %d\n%s", got.code, got.out)
	}
	got.awayIsTold(t)
	got = command("counters", "reset", "--yes", "--domain=shop", "one=the same", f.places())
	if got != (commanded{exitOK, "2 counters of 3 stores reset, and honoured by all replicas within 2s\n", ""}) {
		t.Errorf("counters reset came to %+v", got)
	}
	for i := range f.replicas {
		if !f.admits(i, "one") {
			t.Errorf("replica %d has not forgotten", i)
		}
	}
}

func TestWhatAReplicaRefusesIsToldWithItsName(t *testing.T) {
	f := startCrew(t, 2)
	got := command("counters", "list", "--domain=shop", "--rule=shop.on", f.places())
	for _, s := range f.replicas {
		if want := s.Admin + `: domain shop has no rule "shop.on"; did you mean shop.one?`; !strings.Contains(got.err, want) {
			t.Errorf("there is no %q in %s", want, got.err)
		}
	}
	if got.code != exitError || got.out != "" {
		t.Errorf("it came to %+v", got)
	}
	got = command("counters", "reset", "--yes", "--domain=shop", "one=the same", f.places()) // without a token
	if got.code != exitError || got.out != "" || strings.Count(got.err, "Authorization: Bearer") != 2 {
		t.Errorf("it came to %+v", got)
	}
}

func TestReplicasThatExplainTheSameDoItOnce(t *testing.T) {
	f := startCrew(t, 3, "--redis="+proctest.StartRedis(t).URL())
	f.admits(0, "one")
	got := command("explain", "--domain=shop", "one=y", f.places())
	if got.code != exitOK || got.err != "" || strings.Count(got.out, "answer: OK") != 1 || strings.Contains(got.out, "differs") {
		t.Errorf("it came to %d\n%s%s", got.code, got.out, got.err)
	}
	for _, s := range f.replicas {
		if !regexp.MustCompile(s.Admin + ` +OK +shop.one +1\n`).MatchString(got.out) {
			t.Errorf("there is no answer of %s in\n%s", s.Admin, got.out)
		}
	}
	if got := command("explain", "--domain=shop", "one=the same", f.places()); got.code != exitError {
		t.Errorf("what all refuse came to %+v", got)
	}
	got = command("explain", "--domain=shop", "other=x", f.places(nobody))
	if got.code != exitUsage || !strings.Contains(got.out, "no rule") {
		t.Errorf("with one away it came to %+v", got)
	}
	got.awayIsTold(t)
	if got := command("explain", "--domain=shop", "other=x", f.places()); got.code != exitNoMatch {
		t.Errorf("what no rule matches came to %+v", got)
	}
}

// TestReplicasThatExplainOtherwiseAreNamed has one that has counted, one that has not, and one of other rules.
func TestReplicasThatExplainOtherwiseAreNamed(t *testing.T) {
	f := startCrew(t, 2)
	file := filepath.Join(t.TempDir(), "old.yaml")
	old := "domain: shop\ndescriptors:\n  - {key: one, rate_limit: {unit: year, requests_per_unit: 9}}\n"
	if err := os.WriteFile(file, []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	third := proctest.StartService(t, "--rules="+file)
	f.admits(0, "one")
	got := command("explain", "--domain=shop", "one=the same", f.places(third.Admin))
	if got.code != exitError || got.err != "" {
		t.Errorf("it came to %+v", got)
	}
	for _, want := range []string{
		f.replicas[0].Admin + ` +OVER_LIMIT +shop.one +0\n`, f.replicas[1].Admin + ` +OK +shop.one +1\n`, third.Admin + ` +OK +shop.one +9\n`,
		`(?m)^what replicas say differs$`, `(?m)^` + f.replicas[0].Admin + ":\ndomain shop at .*shop.yaml:2$",
		`(?s)` + third.Admin + ":\ndomain shop at .*old.yaml:1\n.*9 per year",
	} {
		if !regexp.MustCompile(want).MatchString(got.out) {
			t.Errorf("there is no %s in\n%s", want, got.out)
		}
	}
	got = command("explain", "--json", "--domain=shop", "one=the same", f.places(third.Admin, nobody))
	var all explainedByAll
	if err := json.Unmarshal([]byte(got.out), &all); err != nil || !all.Differ || len(all.Replicas) != 4 || got.code != exitUsage {
		t.Errorf("it came to %d, %v\n%s", got.code, err, got.out)
	}
}

func TestWhatNoRuleOfAFleetMatchesIsAddedUp(t *testing.T) {
	f := startCrew(t, 3)
	for i, key := range []string{"two", "two", "ones", "two"} {
		f.admits(i%3, key)
	}
	got := command("unmatched", f.places(nobody))
	want := `(?m)^COUNT +FIRST +LAST +DOMAIN +KEYS +NEAREST\n3 .* shop +two +no key .*\n1 .* shop +ones +did you mean .one.\?$`
	if got.code != exitError || !regexp.MustCompile(want).MatchString(got.out) {
		t.Errorf("it came to %d\n%s", got.code, got.out)
	}
	got.awayIsTold(t)
	got = command("unmatched", "--json", "--admin=http://"+f.replicas[2].Admin)
	var all unmatchedOfAll
	if err := json.Unmarshal([]byte(got.out), &all); err != nil || got.code != exitOK || len(all.Replicas) != 1 || len(all.Shapes) != 1 || all.Shapes[0].Count != 1 {
		t.Errorf("it came to %d, %v\n%s", got.code, err, got.out)
	}
	if got := command("unmatched", "--fleet="+nobody); got.code != exitUsage || got.out != "" {
		t.Errorf("of nobody it came to %+v", got)
	}
}

// TestRowsOfAShapeAreAddedUp is about what replicas say differently.
func TestRowsOfAShapeAreAddedUp(t *testing.T) {
	replies := []adminReply{
		{Replica: "a", Body: []byte(`{"shapes":[{"domain":"d","keys":["k"],"count":2,"first_seen":"2026-01-01T00:00:01Z","last_seen":"2026-01-01T00:00:05Z","nearest":"old"}],"forgotten":1}`)},
		{Replica: "b", Body: []byte(`{"shapes":[{"domain":"d","keys":["l"],"count":4},{"domain":"d","known":true,"keys":["k"],"count":3,"first_seen":"2026-01-01T00:00:03Z","last_seen":"2026-01-01T00:00:09Z","nearest":"new"}],"forgotten":2,"uncounted":5}`)},
		{Replica: "c", Body: []byte(`<html>`)},
	}
	all := newUnmatchedOfAll(replies)
	k := all.Shapes[0]
	if len(all.Shapes) != 2 || k.Count != 5 || k.First.Second() != 1 || k.Last.Second() != 9 || k.Nearest != "new" || !k.Known {
		t.Errorf("the shapes are %+v", all.Shapes)
	}
	if all.Forgotten != 3 || all.Uncounted != 5 || replies[2].Err == nil || all.Replicas[2].Error == "" {
		t.Errorf("they are %+v", all)
	}
}

func FuzzWhatReplicasSayHasNothingThatATerminalObeys(f *testing.F) {
	f.Add([]byte(`{"domain":"d\u001b[2J","answer":"OK\u009b","descriptors":[{"levels":[{"key":"\u202e"}],"rule":"\u0007","limits":[{"left":-1,"decided":"store"}]}]}`))
	f.Add([]byte(`{"answer":"error","failure":"\u001b\n\u0000"}`))
	f.Add([]byte(`{"shapes":[{"domain":"\u001b","keys":["\t\n"],"nearest":"\u001b[2J","count":-1}],"forgotten":1}`))
	f.Add([]byte(`{"shapes":null,"descriptors":null}`))
	f.Add([]byte(`<html>`))
	f.Fuzz(func(t *testing.T, body []byte) {
		replies := func() []adminReply {
			return []adminReply{{Replica: "one", Body: body}, {Replica: "two", Body: []byte(`{}`)}}
		}
		explained := newExplainedByAll(replies())
		_ = explained.exit()
		for _, r := range explained.text() + newUnmatchedOfAll(replies()).text(time.Now()) {
			if !unicode.IsPrint(r) && r != '\n' {
				t.Fatalf("%q makes it print %q", body, r)
			}
		}
	})
}

// TestARedirectIsNotFollowed has a token that is for one host.
func TestARedirectIsNotFollowed(t *testing.T) {
	elsewhere, from := make(chan string, 9), proctest.FreePort(t)
	server := &http.Server{Addr: fmt.Sprintf("127.0.0.1:%d", from), ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/elsewhere" {
			elsewhere <- r.Header.Get("Authorization")
		}
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	})}
	go func() { _ = server.ListenAndServe() }() // until it is closed
	t.Cleanup(func() { _ = server.Close() })
	t.Setenv("ENVOY_RLS_TOKEN", adminToken)
	at := "http://" + server.Addr
	proctest.Eventually(t, "somebody redirects", func() bool { return strings.Contains(command("override", "list", "--admin="+at).err, "307") })
	for _, args := range [][]string{
		{"counters", "list", "--domain=shop", "--admin=" + at}, {"explain", "--domain=shop", "a=b", "--from=" + at},
		{"top", "--once", "--admin=" + at}, {"unmatched", "--admin=" + at},
	} {
		if got := command(args...); got.code == exitOK || !strings.Contains(got.out+got.err, "it answers 307") {
			t.Errorf("%q came to %+v", args, got)
		}
	}
	if len(elsewhere) > 0 {
		t.Errorf("it went elsewhere, with %q", <-elsewhere)
	}
}
