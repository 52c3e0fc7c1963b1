package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unicode"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

const topRules = `
domain: shop
descriptors:
  - {key: user, rate_limit: {unit: year, requests_per_unit: 10}}
  - {key: path, rate_limit: {unit: year, requests_per_unit: 1000}}
`

// topFleet is two replicas over one Redis, of which the first answered 30 calls for user and 5 for path, and the second 20
// and 50, and a third that is away. It returns their places.
func topFleet(t *testing.T, rules [2]string, args ...string) (places string) {
	t.Helper()
	redis, dir := proctest.StartRedis(t), t.TempDir()
	asked := [2]map[string]int{{"user": 30, "path": 5}, {"user": 20, "path": 50}}
	for i := range asked {
		file := filepath.Join(dir, []string{"one.yaml", "two.yaml"}[i])
		if err := os.WriteFile(file, []byte(rules[i]), 0o600); err != nil {
			t.Fatal(err)
		}
		s := proctest.StartService(t, append([]string{"--rules=" + file, "--redis=" + redis.URL(), "--store-timeout=5s"}, args...)...)
		for key, n := range asked[i] {
			askOften(t, s, key, n)
		}
		places += s.Admin + ","
	}
	return places + "127.0.0.1:1"
}

// askOften asks n times for a descriptor of one key.
func askOften(t *testing.T, s *proctest.Service, key string, n int) {
	t.Helper()
	client := ratelimit.NewRateLimitServiceClient(dial(t, s.GRPC))
	for range n {
		if _, err := client.ShouldRateLimit(t.Context(), shopRequest(key)); err != nil {
			t.Fatal(err)
		}
	}
}

// runTop runs the program, and returns its exit code and what it prints.
func runTop(args ...string) (code int, printed string) {
	c := command(append([]string{"top"}, args...)...)
	return c.code, c.out + c.err
}

func TestTopAddsUpWhatReplicasSaw(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("a secret of many bytes"), 0o600); err != nil {
		t.Fatal(err)
	}
	places := topFleet(t, [2]string{topRules, topRules}, "--redact-key-file="+key)
	code, text := runTop("--json", "--fleet="+places)
	if code != exitError {
		t.Errorf("it ends with %d", code)
	}
	var seen topOfAll
	if err := json.Unmarshal([]byte(text), &seen); err != nil {
		t.Fatal(err)
	}
	if len(seen.Replicas) != 3 || seen.answered() != 2 || !strings.Contains(text, "connection refused") {
		t.Errorf("the replicas are %s", text)
	}
	// The limit is shared: of 50 calls for user 40 were refused, by whichever replica.
	got := fmt.Sprint(rowWords(seen.Rules), rowWords(seen.Values), rowWords(seen.Counters))
	if want := "[40 shop.user ] [40 shop.user user=~] [55 shop.path path=~ 50 shop.user user=~]"; got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
	for _, r := range seen.Replicas[1:] { // the first is the one that is away
		if s := r.Store; s.Kind != "redis" || !s.Up || s.Calls == 0 || s.P99MS <= 0 || s.Breakers["0"] != "closed" {
			t.Errorf("the store of %s is %+v", r.Replica, s)
		}
	}
}

// rowWords are rows, the highest count first as texts go, without times and hashes.
func rowWords(rows []topRow) []string {
	list := make([]string, len(rows))
	for i, r := range rows {
		list[i] = fmt.Sprint(r.Count, " ", r.Rule, " ", regexp.MustCompile(`~[0-9a-f]{10}$`).ReplaceAllString(r.Descriptor, "~"))
	}
	slices.Sort(list)
	slices.Reverse(list)
	return list
}

func TestTopTellsWhatReplicasDifferIn(t *testing.T) {
	places := topFleet(t, [2]string{topRules, strings.Replace(topRules, "1000", "2000", 1)})
	code, text := runTop("--once", "--fleet="+places)
	for _, want := range []string{
		"2 of 3 replicas, ", "\n127.0.0.1:1 ", "no answer: dial tcp 127.0.0.1:1: connect: connection refused",
		"the rules of replicas differ\n", "values are hashed by several keys",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %q in\n%s", want, text)
		}
	}
	if code != exitError {
		t.Errorf("it ends with %d", code)
	}
	if !regexp.MustCompile(`(?m)^REPLICA .*\n.* redis .*\n.* redis .*\n127\.0\.0\.1:1 +no answer`).MatchString(text) {
		t.Errorf("who does not answer stands between the others, whose columns that breaks:\n%s", text)
	}
}

func TestTopGoesOnUntilItIsInterrupted(t *testing.T) {
	s := proctest.StartService(t, "--rules="+writeRules(t))
	watching := proctest.Start(t, nil, proctest.Binary(t), "top", "--interval=20ms", "--admin=http://"+s.Admin)
	proctest.Eventually(t, "there are three tables", func() bool {
		return strings.Count(watching.Output(), "1 of 1 replicas") >= 3
	})
	watching.Signal(syscall.SIGINT)
	if code := watching.Wait(); code != exitOK {
		t.Errorf("it ends with %d", code)
	}
	if strings.Contains(watching.Output(), "\x1b") {
		t.Errorf("what is no terminal is told what to do: %q", watching.Output())
	}
}

func TestATerminalIsWrittenOver(t *testing.T) {
	var out bytes.Buffer
	s := screen{out: &out, terminal: true}
	if err := s.show("one\ntwo\n"); err != nil {
		t.Fatal(err)
	}
	if want := "\x1b[Hone\x1b[K\ntwo\x1b[K\n\x1b[J"; out.String() != want {
		t.Errorf("it is told %q", out.String())
	}
}

func FuzzATableHasNothingThatATerminalObeys(f *testing.F) {
	f.Add([]byte(`{"refused_values":[{"rule":"r","descriptor":"user=\u001b[2J\u009b\n\t\u202e","per_second":1}],"rules_hash":"\u0007"}`))
	f.Add([]byte(`{"store":{"kind":"redis","breakers":{"0":"open"}}}`))
	f.Add([]byte(`<html>`))
	f.Fuzz(func(t *testing.T, body []byte) {
		all := &topOfAll{}
		all.add(&adminReply{Replica: "one", Body: body})
		for _, r := range all.table() {
			if !unicode.IsPrint(r) && r != '\n' {
				t.Fatalf("%q has %q", all.table(), r)
			}
		}
	})
}
