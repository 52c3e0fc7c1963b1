package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

// newcomers are the mistakes that everybody makes at first, by what tells of them. A line with rules is one that explain
// and /unmatched answer: its entries are sent as Envoy sends them after that mistake. Of the others, shown is the test, or the
// file of a test, that makes the mistake and sees it named.
var newcomers = []struct {
	mistake, answeredBy string
	rules               string // descriptors of a domain
	domain              string // sent, if it is another one than the rules'
	sent                string // "" is an empty descriptor
	says                string // by explain, by /unmatched and in the log, unless a rule matches
	shown               string
}{
	{
		mistake: "N1 the domain of the filter is not that of the rules", answeredBy: "explain, /unmatched",
		rules: "{key: user, rate_limit: *one}", domain: "N1-the-domain", sent: "user=ann",
		says: "no rules for this domain: did you mean `n1-the-domain`? It differs in case",
	},
	{
		mistake: "N1 the key is misspelt", answeredBy: "explain, /unmatched",
		rules: "{key: tenant, rate_limit: *one}", sent: "tennant=t", says: "did you mean `tenant`?",
	},
	{
		mistake: "N1 the value has another case", answeredBy: "explain, /unmatched",
		rules: "{key: plan, value: gold, rate_limit: *one}", sent: "plan=Gold", says: "it differs in case from `gold`",
	},
	{
		mistake: "N1 the entries are in another order", answeredBy: "explain, /unmatched",
		rules: "{key: a, descriptors: [{key: b, rate_limit: *one}]}", sent: "b=1 a=1", says: "in the order `a`, `b` it matches",
	},
	{
		mistake: "N1 a key stands one level up", answeredBy: "explain, /unmatched",
		rules: "{key: path, rate_limit: *one}, {key: tenant, rate_limit: *one}", sent: "path=/a tenant=t",
		says: "`tenant` exists one level up, beside `path`",
	},
	{
		mistake: "N1 the descriptor is deeper than the rules", answeredBy: "explain, /unmatched",
		rules: "{key: path, rate_limit: *one}", sent: "path=/a method=GET", says: "the rules end after entry 1",
	},
	{
		mistake: "N1 a closer value hides the default", answeredBy: "explain, /unmatched",
		rules: "{key: a, descriptors: [{key: c, rate_limit: *one}]}, {key: a, value: x, descriptors: [{key: b, rate_limit: *one}]}",
		sent:  "a=x c=1", says: "there is no way back; repeat `c` there",
	},
	{
		mistake: "N2 an action with skip_if_absent had no value", answeredBy: "explain, /unmatched (no call at all: check --envoy)",
		rules: "{key: generic_key, value: api, descriptors: [{key: tenant, rate_limit: *one}]}", sent: "generic_key=api",
		says: "the rules go on below it with `tenant`",
	},
	{
		mistake: "N2 all actions with skip_if_absent had none", answeredBy: "explain, /unmatched",
		rules: "{key: tenant, rate_limit: *one}", sent: "", says: "Envoy sends one if skip_if_absent leaves out all of its entries",
	},
	{mistake: "N3 calls are late, and pass", answeredBy: "the log, metrics (late_answers_total, request_deadline_seconds)", shown: "TestATimeoutThatIsTooShortIsToldOf"},
	{mistake: "N3 nobody says how long a call may take", answeredBy: "check --envoy", shown: "TestEachFaultIsFound"},
	{mistake: "N4 a ConfigMap is mounted by subPath", answeredBy: "the log, top --fleet", shown: "TestAConfigMapThatIsMountedBySubPathIsToldOf"},
	{mistake: "N4 replicas have other rules", answeredBy: "metrics (rules_drift), an alert", shown: "TestReplicasThatKeepOldRulesAreCounted"},
	{mistake: "N5 the rules are wrong, the pod green", answeredBy: "check, /readyz", shown: "good-rules-serve-beside-bad-ones.txtar"},
	{mistake: "N6 two limits for one key", answeredBy: "check", shown: "duplicate_descriptor.yaml"},
	{
		mistake: "N7 the rule has the header's name, Envoy sends its own", answeredBy: "explain, /unmatched",
		rules: "{key: x-tenant, rate_limit: *one}", sent: "header_match=acme", says: "Envoy calls an entry so unless its action has a descriptor_key",
	},
	{mistake: "N8 the address is one that clients write", answeredBy: "check --envoy", shown: "TestEachFaultIsFound"},
	{mistake: "N8 the address is a proxy's", answeredBy: "check --envoy, which says whose it is", shown: "TestThePredictedClientIsWhomEnvoyTakesForIt"},
	{
		mistake: "N9 the path has a query", answeredBy: "explain, /unmatched",
		rules: "{key: path, value: /login, rate_limit: *one}", sent: "path=/login?x=1",
		says: "without its query it would match n9-the-path.path_/login; keys: {path: {strip_query: true}} cuts that off",
	},
	{
		mistake: "N9 the wildcard wants a slash", answeredBy: "explain, /unmatched",
		rules: `{key: path, value: "/api/*", rate_limit: *one}`, sent: "path=/api", says: "with a slash at its end it would match",
	},
	{mistake: "N10 the filter or the route isn't attached", answeredBy: "check --envoy, metrics (requests_total stays at 0)", shown: "TestEachFaultIsFound"},
	{mistake: "N11 no HTTP/2, TLS, the wrong port", answeredBy: "the log", shown: "TestAnEnvoyThatCallsInAnotherProtocolIsToldOf"},
	{mistake: "N11 no HTTP/2, the wrong port", answeredBy: "check --envoy", shown: "TestEachFaultIsFound"},
	{mistake: "N12 Redis is of another kind", answeredBy: "serve, which says so at the start", shown: "TestServersSetUpOtherwiseAreNamed"},
	{
		mistake: "N13 a rule without a value counts for each value", answeredBy: "explain",
		rules: "{key: path, rate_limit: *one}", sent: "path=/a", says: "1 per day for each distinct path, fixed window",
	},
	{
		mistake: "N14 windows end all at once", answeredBy: "explain",
		rules: "{key: path, rate_limit: *one}", sent: "path=/b", says: "fixed window; refused requests cost nothing",
	},
	{mistake: "N15 an option that another version has", answeredBy: "serve, which names it, and --version", shown: "an-unknown-flag-is-named.txtar"},
}

// TestEachMistakeOfNewcomersHasATest looks for what is shown elsewhere.
func TestEachMistakeOfNewcomersHasATest(t *testing.T) {
	tests, err := exec.Command("grep", "-rhoE", "--include=*_test.go", "^func Test[A-Za-z0-9]+", proctest.Root()).Output()
	if err != nil {
		t.Fatal(err)
	}
	files, err := exec.Command("find", proctest.Root(), "-path", "*/testdata/*").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range newcomers {
		known := strings.Contains(string(tests), "func "+n.shown+"\n") || strings.Contains(string(files), "/"+n.shown+"\n")
		if n.rules == "" && (n.shown == "" || !known) {
			t.Errorf("%s: there is no test %q", n.mistake, n.shown)
		}
	}
}

// domainOf is the name of a mistake's domain: its number and the two words behind it.
func domainOf(mistake string) string {
	return strings.ToLower(strings.Join(strings.Fields(mistake)[:3], "-"))
}

func TestEachMistakeOfNewcomersIsNamed(t *testing.T) {
	dir := t.TempDir()
	for i, n := range newcomers {
		if n.rules == "" {
			continue
		}
		text := fmt.Sprintf("domain: %s\ndescriptors: [%s]\n", domainOf(n.mistake),
			strings.ReplaceAll(n.rules, "*one", "{unit: day, requests_per_unit: 1}"))
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i, ".yaml")), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	service := proctest.StartService(t, "--rules="+dir)
	client := ratelimit.NewRateLimitServiceClient(dial(t, service.GRPC))
	requests := map[string]*ratelimit.RateLimitRequest{}
	for _, n := range newcomers { // all at first: the log tells of what came since it last did
		if n.rules == "" {
			continue
		}
		req, err := requestOf(cmp.Or(n.domain, domainOf(n.mistake)), [][]string{strings.Fields(n.sent)}, clientHits{count: 1}, clientLimit{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.ShouldRateLimit(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		requests[n.mistake] = req
	}
	for _, n := range newcomers {
		if n.rules == "" {
			continue
		}
		t.Run(n.mistake, func(t *testing.T) {
			req := requests[n.mistake]
			if told := post(t, service, "text/plain", req); !strings.Contains(told, n.says) {
				t.Errorf("explain says\n%s\nwant %s", told, n.says)
			}
			if strings.Contains(n.answeredBy, "/unmatched") {
				unmatchedSays(t, service, req.GetDomain(), n.says)
			}
		})
	}
}

// unmatchedSays checks that /unmatched, and soon the log, say so of a domain's descriptors.
func unmatchedSays(t *testing.T, service *proctest.Service, domain, want string) {
	t.Helper()
	if row := rowOf(t, service, domain); row == nil || !strings.Contains(row.Nearest, want) {
		t.Errorf("/unmatched says %+v, want %s", row, want)
	}
	proctest.Eventually(t, "the log says "+want, func() bool {
		return slices.ContainsFunc(strings.Split(service.Output(), "\n"), func(line string) bool {
			return strings.Contains(line, "domain="+domain+" ") && strings.Contains(line, want)
		})
	})
}

// rowOf is the row of /unmatched for a domain, or nil.
func rowOf(t *testing.T, service *proctest.Service, domain string) *unmatchedRow {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, "http://"+service.Admin+"/unmatched", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "application/json")
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }() // it was read
	var page unmatchedPage
	if err := json.NewDecoder(answer.Body).Decode(&page); err != nil {
		t.Fatal(err)
	}
	for i := range page.Shapes {
		if page.Shapes[i].Domain == domain {
			return &page.Shapes[i]
		}
	}
	return nil
}

// TestTheCountThatIsExplainedIsWhatTheNextCallReports is about every algorithm, in memory and over Redis.
func TestTheCountThatIsExplainedIsWhatTheNextCallReports(t *testing.T) {
	redis := proctest.StartRedis(t)
	for store, args := range map[string][]string{"memory": nil, "redis": {"--redis=" + redis.URL()}} {
		t.Run(store, func(t *testing.T) {
			service := startServices(t, 1, args...)[0]
			client := ratelimit.NewRateLimitServiceClient(dial(t, service.GRPC))
			for _, algorithm := range limiter.AlgorithmNames() {
				for _, cost := range []uint64{3, 1, 0, 96, 2} {
					req := shopRequest(algorithm)
					req.Descriptors[0].HitsAddend = wrapperspb.UInt64(cost)
					foretells(t, service, client, req)
				}
			}
		})
	}
}

// foretells explains a request a few times, and checks that its answer is then what was told.
func foretells(t *testing.T, service *proctest.Service, client ratelimit.RateLimitServiceClient, req *ratelimit.RateLimitRequest) {
	t.Helper()
	var x rls.Explanation
	for range 3 {
		if err := json.Unmarshal([]byte(post(t, service, "application/json", req)), &x); err != nil {
			t.Fatal(err)
		}
	}
	answer, err := client.ShouldRateLimit(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	l, st := x.Descriptors[0].Limits[0], answer.GetStatuses()[0]
	if x.Answer != answer.GetOverallCode().String() || l.Allowed && l.LeftAfter != int64(st.GetLimitRemaining()) {
		t.Errorf("%v is explained as %s with %d left, and answered by %v", req, x.Answer, l.LeftAfter, st)
	}
}

// TestExplainAndTheServiceAgreeOnTheEnvironment runs explain beside a service, with nothing but its environment.
func TestExplainAndTheServiceAgreeOnTheEnvironment(t *testing.T) {
	redis := proctest.StartRedis(t)
	env := []string{"REDIS_URL=" + redis.URL(), "CACHE_KEY_PREFIX=own:", "RULES=" + writeRules(t), "DEFAULT_ALGORITHM=sliding_window",
		"STORE_TIMEOUT=5s"}
	service := proctest.LaunchService(t, env)
	awaitReady(t, service)
	client := ratelimit.NewRateLimitServiceClient(dial(t, service.GRPC))
	if _, err := client.ShouldRateLimit(t.Context(), shopRequest("user")); err != nil {
		t.Fatal(err)
	}
	var live, beside rls.Explanation
	if err := json.Unmarshal([]byte(post(t, service, "application/json", shopRequest("user"))), &live); err != nil {
		t.Fatal(err)
	}
	var out []byte
	var err error
	proctest.Eventually(t, "explain is in time", func() bool {
		explain := exec.Command(proctest.Binary(t), "explain", "--json", "--domain", "shop", "user=the same")
		explain.Env = append(os.Environ(), env...)
		out, err = explain.Output()
		return !bytes.Contains(out, []byte(tooLate))
	})
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := json.Unmarshal(out, &beside); err != nil {
		t.Fatal(err)
	}
	a, b := live.Descriptors[0].Limits[0], beside.Descriptors[0].Limits[0]
	if a.Counter != b.Counter || a.Left != b.Left || a.Left >= a.Most || !strings.Contains(b.Words, "sliding window") {
		t.Errorf("the service explains\n%+v, explain\n%+v", a, b)
	}
}

func FuzzReadRequest(f *testing.F) {
	for _, text := range []string{
		`{"domain": "d", "descriptors": [{"entries": [{"key": "a", "value": "b"}], "hits_addend": "3", "limit": {"requests_per_unit": 1, "unit": "DAY"}}]}`,
		`{"log": {"domain": "d", "descriptors": [{"entries": ["a=b=c", "d=e"], "hitsAddend": 2, "limit": "requests_per_unit:4 unit:DAY"}], "hitsAddend": 7}}`,
		`{"log": "{\"domain\": \"d\", \"descriptors\": [{\"entries\": []}]}"}`,
		`[[[[[[[[[[{"descriptors": [1]}]]]]]]]]]]`, `{"descriptors": [{"entries": ["a"]}]}`, `{"descriptors": [{"hitsAddend": 1e400}]}`,
		`{"descriptors": [{"entries": ["a=b"], "hitsAddend": -1}]}`, `{}`, `null`, `"`, "\xff", `{} {}`,
		`{"descriptors": [{"entries": ["a=b"], "limit": "unit: \"x"}]}`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		req, err := readRequest([]byte(text))
		if (req == nil) != (err != nil) {
			t.Fatalf("%v, %v", req, err)
		}
		if err != nil {
			return
		}
		if len(req.GetDescriptors()) == 0 {
			t.Error("a request without descriptors")
		}
		if _, err := proto.Marshal(req); err != nil {
			t.Errorf("it can't be sent: %v", err)
		}
	})
}

// post has the service explain a request.
func post(t *testing.T, service *proctest.Service, accept string, explained *ratelimit.RateLimitRequest) (text string) {
	t.Helper()
	proctest.Eventually(t, "the service explains in time", func() bool {
		text = postOnce(t, service, accept, explained)
		return !strings.Contains(text, tooLate)
	})
	return text
}

func postOnce(t *testing.T, service *proctest.Service, accept string, explained *ratelimit.RateLimitRequest) string {
	t.Helper()
	body, err := protojson.Marshal(explained)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequest(http.MethodPost, "http://"+service.Admin+"/explain", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", accept)
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }() // it was read
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %v", answer.Status, text, err)
	}
	return string(text)
}
