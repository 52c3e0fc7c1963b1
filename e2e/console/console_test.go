package console

import (
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

const shopRules = `domain: shop
descriptors:
  - {key: user, rate_limit: {unit: day, requests_per_unit: 3}}
  - key: tenant
    value: acme
    descriptors:
      - {key: path, value: /login, rate_limit: {unit: day, requests_per_unit: 5}}
      - {key: path, rate_limits: [{name: fast, unit: second, requests_per_unit: 9}, {name: slow, unit: day, requests_per_unit: 900}]}
`

const depotRules = `domain: depot
descriptors:
  - {key: bay, rate_limit: {unit: day, requests_per_unit: 1}, shadow_mode: true}
`

// rules is a directory of rule files.
type rules struct {
	t   *testing.T
	dir string
}

func newRules(t *testing.T, texts map[string]string) rules {
	t.Helper()
	r := rules{t, t.TempDir()}
	for name, text := range texts {
		r.write(name, text)
	}
	return r
}

func (r rules) write(name, text string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func (r rules) flag() string { return "--rules=" + r.dir }

// shop is a service in memory with both files above, and all the time it wants.
func shop(t *testing.T) (*proctest.Service, rules) {
	t.Helper()
	r := newRules(t, map[string]string{"shop.yaml": shopRules, "depot.yaml": depotRules})
	return proctest.StartService(t, r.flag(), "--store=memory", "--store-timeout=5s"), r
}

// descriptor has entries of keys and values in turn.
func descriptor(entries ...string) *common.RateLimitDescriptor {
	d := &common.RateLimitDescriptor{}
	for i := 0; i < len(entries); i += 2 {
		d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: entries[i], Value: entries[i+1]})
	}
	return d
}

// ask asks a service n times over gRPC for a descriptor with entries.
func ask(t *testing.T, s *proctest.Service, n int, domain string, entries ...string) {
	t.Helper()
	for range n {
		send(t, s, &ratelimit.RateLimitRequest{Domain: domain, Descriptors: []*common.RateLimitDescriptor{descriptor(entries...)}})
	}
}

// send sends a request, and returns the answer.
func send(t *testing.T, s *proctest.Service, request *ratelimit.RateLimitRequest) *ratelimit.RateLimitResponse {
	t.Helper()
	conn, err := grpc.NewClient(s.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }() // its call has ended
	answer, err := ratelimit.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// cells is the expression for the text of a row's cells.
func cells(name string) string { return row(name) + `?.innerText.replace(/\s+/g, " ")` }

func TestRulesAreATreeWithLiveCounts(t *testing.T) {
	t.Parallel()
	s, _ := shop(t)
	b := open(t, s)
	b.until("rules as a tree", cells("tenant=acme")+` === "tenant=acme 0 0"`)
	b.until("levels that lead to one only are on one row", row("user")+"?.getAttribute('aria-level') === '2'")
	b.until("a rule's words", cells("user")+` === "user 3 per day 0 0"`)
	b.shows("#refused", "Nobody was refused")
	ask(t, s, 5, "shop", "user", "ann")
	ask(t, s, 2, "depot", "bay", "7")
	b.until("decisions and refusals", cells("user")+`.startsWith("user 3 per day 5 40% 2 ")`)
	b.until("those of the domain", cells("shop")+`.startsWith("shop 3 rules 5 40% 2 ")`)
	b.until("what was only tried out", cells("bay")+` === "bay 1 per day tried out 2 +1 tried 0"`)
	b.until("a picture", row("user")+`.querySelector("svg polyline")`)
	b.shows("#refused li", "shop.user")
	b.shows("#now", "2 calls over limit")
	b.shows("#store", "memory of this process")

	// What is shown of the same rules may become more.
	d := descriptor("plan", "trial")
	d.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 7, Unit: typepb.RateLimitUnit_HOUR}
	send(t, s, &ratelimit.RateLimitRequest{Domain: "shop", Descriptors: []*common.RateLimitDescriptor{d}})
	b.until("limits that requests bring along have a row", cells("brought along by requests"))
}

func TestTheKeyboardIsEnough(t *testing.T) {
	t.Parallel()
	s, _ := shop(t)
	b := open(t, s)
	b.until("rules", row("user"))
	at := func(name string) string { return "document.activeElement === " + row(name) }
	b.press("/")
	b.until("the search has the focus", `document.activeElement.id === "search"`)
	b.press("l", "o", "g", "i", "n")
	b.until("what was not found is gone", "!"+row("user"))
	b.until("what was found is there with what is above it", row("path=/login")+" && "+row("tenant=acme"))
	b.press(kb.Escape)
	b.until("all rules are back", row("user"))
	b.press(kb.Tab)
	b.until("what was first of what was found has the focus", at("shop"))
	b.until("it can be seen", `getComputedStyle(document.activeElement).outlineStyle !== "none"`)
	b.press(kb.ArrowUp, kb.ArrowUp, kb.ArrowDown, kb.ArrowDown)
	b.until("the focus has moved, and come back", at("shop"))
	b.press(kb.ArrowLeft)
	b.until("it is closed", row("shop")+`.getAttribute("aria-expanded") === "false" && !`+row("user"))
	b.press(kb.ArrowRight, kb.ArrowRight)
	b.until("it is open, and the focus is in it", at("user"))
	b.press(kb.Enter)
	b.shows(".detail", "3 per day for each distinct user, fixed window")
	b.press(kb.End)
	b.until("the last row has the focus", at("/slow"))
	b.press(kb.ArrowLeft, kb.Home)
	b.until("the first row has the focus again", at("depot"))
	ask(t, s, 1, "shop", "user", "bob")
	b.until("a count has changed", cells("user")+`.includes(" 1 0")`)
	b.until("and the focus has stayed", at("depot"))
}

// hostile would run if it ever became markup.
const hostile = `<img src=x onerror="document.title='owned'"><script>document.title='owned'</script>`

func TestWhatAClientSendsStaysText(t *testing.T) {
	t.Parallel()
	r := newRules(t, map[string]string{"shop.yaml": fmt.Sprintf(
		"domain: shop\ndescriptors:\n  - {key: %[1]q, value: %[1]q, rate_limit: {unit: day, requests_per_unit: 1}, detailed_metric: true}\n", hostile)})
	s := proctest.StartService(t, r.flag(), "--store=memory", "--store-timeout=5s")
	b := open(t, s)
	ask(t, s, 3, "shop", hostile, hostile)
	ask(t, s, 1, "shop", hostile, "other"+hostile)
	ask(t, s, 1, hostile, hostile, hostile)
	b.until("the rule, its count and what it is are text", cells(hostile+"="+hostile)+"?.includes(' 3 66% 2 ')")
	b.shows("#refused", hostile)
	b.do(chromedp.Click(chromedp.CSS(".row.rule")))
	b.shows(".detail", hostile)
	if b.has("/unmatched") {
		b.shows("#unmatched", hostile)
	}
	if b.has("/top") {
		b.shows("#values", "<img src=x") // of the key, which is cut; values may be hashed
	}
	r.write("shop.yaml", fmt.Sprintf("domain: shop\ndescriptors:\n  - {key: a, %q: 1}\n", hostile))
	b.shows("#banners", "<img src=x")
	b.shows("#reloads", "<img src=x")
	if eval[bool](b, `document.querySelector("img, body script, iframe, object") !== null || document.title === "owned"`) {
		t.Error("a text became markup")
	}
}

// has tells whether the service has a page.
func (b *tab) has(path string) bool {
	b.t.Helper()
	r, err := http.Get("http://" + b.host + path)
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }() // its status is enough
	return r.StatusCode != http.StatusNotFound
}

func TestADescriptorIsTried(t *testing.T) {
	t.Parallel()
	s, _ := shop(t)
	b := open(t, s)
	if !b.has("/explain") {
		b.shows("#try", "not available in this build")
		return
	}
	ask(t, s, 2, "shop", "user", "a,b=c<b>")
	b.until("rules", row("user"))
	b.do(chromedp.Click(chromedp.CSS(".row.rule .name")))
	b.shows(".detail", "bay")
	b.do(chromedp.Click(chromedp.CSS("#try [name=domain]")))
	b.press("s", "h", "o", "p", kb.Tab, kb.Tab)
	b.press(strings.Split("user", "")...)
	b.press(kb.Tab)
	b.press(strings.Split("a,b=c<b>", "")...)
	b.press(kb.Enter)
	b.shows("#try .verdict", "OK")
	b.shows("#try .levels", "user=a,b=c<b>")
	b.shows("#try .limit", "1 of 3 left")
	ask(t, s, 2, "shop", "user", "a,b=c<b>")
	b.do(chromedp.Click(chromedp.CSS("#try button.primary")))
	b.shows("#try .verdict", "Over limit")
	b.do(chromedp.SetValue(chromedp.CSS("#try .key"), "usr"), chromedp.Click(chromedp.CSS("#try button.primary")))
	b.shows("#try .why", "did you mean `user`?")
	b.do(chromedp.SetValue(chromedp.CSS("#try [name=domain]"), "nowhere"), chromedp.Click(chromedp.CSS("#try button.primary")))
	b.shows("#try", "No rules name this domain.")
}

func TestRulesThatAreRefusedAreTold(t *testing.T) {
	t.Parallel()
	s, r := shop(t)
	b := open(t, s)
	b.shows("#reloads", "in force")
	r.write("shop.yaml", strings.Replace(shopRules, "requests_per_unit: 3", "requests_per_unit: 4", 1))
	b.shows("#reloads .changed", "shop.user: 3 per day -> 4 per day")
	r.write("shop.yaml", strings.Replace(shopRules, "unit: day", "unit: dya", 1))
	b.shows("#banners", "Rules were refused: 1 problem")
	b.shows("#banners", "did you mean day?")
	b.shows("#reloads .problem", "did you mean day?")
	b.shows("#now", "1 problem in the last load")
	r.write("shop.yaml", shopRules)
	b.until("the banner is gone", `document.querySelector("#banners").childElementCount === 0`)
}

func TestWithoutRulesItSaysWhatToDo(t *testing.T) {
	t.Parallel()
	s := proctest.LaunchService(t, nil, "--rules="+t.TempDir(), "--store=memory")
	b := open(t, s)
	b.shows("#rules", "No rules are in force")
	b.shows("#banners", "Rules are missing")
	b.shows("#ready", "not ready")
	b.press("/", "x") // there is nothing to search
	b.shows("#rules", "No rules are in force")
}

func TestAStoreThatIsAwayIsTold(t *testing.T) {
	t.Parallel()
	redis := proctest.StartRedis(t)
	r := newRules(t, map[string]string{"shop.yaml": shopRules})
	s := proctest.StartService(t, r.flag(), "--redis="+redis.URL())
	b := open(t, s)
	b.shows("#store", "closed")
	redis.Kill()
	ask(t, s, 10, "shop", "user", "ann")
	b.shows("#banners", "The store is away")
	b.shows("#store .lane", "open")
	b.shows("#store", "local")
	b.shows("#now", "away")
	redis.Restart()
	b.until("the banner is gone", `document.querySelector("#banners").childElementCount === 0`)
}

func TestAServiceThatIsGoneIsTold(t *testing.T) {
	t.Parallel()
	s, _ := shop(t)
	b := open(t, s)
	s.Kill()
	b.shows("#banners", "Not reached since ")
	b.shows("#ready", "not reached")
	proctest.Eventually(t, "the browser's log tells", func() bool { return b.forgive("net::ERR_") > 0 })
	s.Restart()
	b.until("the page is live again", `document.body.dataset.state === "live"`)
	b.shows("#ready", "ready")
	b.until("the banner is gone", `document.querySelector("#banners").childElementCount === 0`)
	b.forgive("net::ERR_")
}

// TestAnswersOfAnotherAreTold: a proxy that wants a login answers with a page of its own, one that breaks with half of one.
func TestAnswersOfAnotherAreTold(t *testing.T) {
	t.Parallel()
	s, _ := shop(t)
	var answer atomic.Pointer[http.HandlerFunc]
	through := http.HandlerFunc(httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: s.Admin}).ServeHTTP)
	answer.Store(&through)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*answer.Load())(w, r) }))
	t.Cleanup(proxy.Close)
	b := open(t, &proctest.Service{Admin: proxy.Listener.Addr().String()})
	login := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<h1>Who are you?</h1>")) })
	answer.Store(&login)
	b.shows("#banners", "what answers isn't the admin port")
	half := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = w.Write([]byte("{"))
		panic(http.ErrAbortHandler)
	})
	answer.Store(&half)
	b.shows("#banners", "the service doesn't answer")
	answer.Store(&through)
	b.until("the banner is gone", `document.querySelector("#banners").childElementCount === 0`)
	b.forgive("net::ERR_")
}

var write = flag.Bool("write", false, "write the picture of docs/console.md")

// TestThePictureOfTheDocs looks at the page as the docs show it.
func TestThePictureOfTheDocs(t *testing.T) {
	t.Parallel()
	s, _ := shop(t)
	b := open(t, s)
	b.prefers("light")
	b.do(chromedp.EmulateViewport(1280, 860))
	for reading := range 6 {
		before := eval[string](b, cells("shop"))
		ask(t, s, 4+reading, "shop", "user", fmt.Sprint("u", reading))
		ask(t, s, 7, "shop", "tenant", "acme", "path", "/login")
		ask(t, s, 3, "shop", "User", "ann")
		b.until("the counts have changed", fmt.Sprintf("%s !== %q", cells("shop"), before))
	}
	picture, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		t.Fatal(err)
	}
	if len(picture) > 150<<10 {
		t.Errorf("the picture has %d bytes", len(picture))
	}
	if !*write {
		return
	}
	if err := os.WriteFile(filepath.Join(proctest.Root(), "docs", "img", "console.png"), picture, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestLightAndDarkAndNarrow(t *testing.T) {
	t.Parallel()
	s, _ := shop(t)
	b := open(t, s)
	b.until("rules", row("user"))
	ground := func() string { return eval[string](b, "getComputedStyle(document.body).backgroundColor") }
	b.prefers("light")
	light := ground()
	b.prefers("dark")
	dark := ground()
	if light == dark {
		t.Errorf("both are %s", light)
	}
	for _, want := range []struct{ theme, ground string }{{"light", light}, {"dark", dark}, {"auto", dark}} {
		b.do(chromedp.Click(chromedp.CSS("#theme")))
		b.shows("#theme", "Theme: "+want.theme)
		if got := ground(); got != want.ground {
			t.Errorf("theme %s is %s, want %s", want.theme, got, want.ground)
		}
	}
	b.do(chromedp.Click(chromedp.CSS("#theme")), chromedp.Reload())
	b.shows("#theme", "Theme: light")
	b.until("it is kept", fmt.Sprintf("getComputedStyle(document.body).backgroundColor === %q", light))
	b.until("nothing moves", `getComputedStyle(document.querySelector(".twist"), "::before").transitionDuration === "0s"`)
	for _, width := range []int64{320, 390, 768, 1400} {
		b.do(chromedp.EmulateViewport(width, 800))
		if over := eval[int64](b, "document.documentElement.scrollWidth - innerWidth"); over > 0 {
			t.Errorf("at a width of %d, %d pixels are out of sight", width, over)
		}
	}
}

func TestTheBrowserIsToldToTrustNothingElse(t *testing.T) {
	t.Parallel()
	s, _ := shop(t)
	get := func(path, accept string) (status int, h http.Header) {
		t.Helper()
		req, err := http.NewRequest(http.MethodGet, "http://"+s.Admin+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", accept)
		r, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close() // its head is enough
		return r.StatusCode, r.Header
	}
	for _, path := range []string{"/", "/console", "/console/main.js", "/console/style.css", "/console/none"} {
		_, h := get(path, "text/html,*/*;q=0.8")
		policy := h.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "trusted-types 'none'"} {
			if !strings.Contains(policy, want) {
				t.Errorf("%s: the policy is %q, without %s", path, policy, want)
			}
		}
		if strings.Contains(policy, "unsafe") || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("%s: %v", path, h)
		}
	}
	if _, h := get("/", "*/*"); !strings.HasPrefix(h.Get("Content-Type"), "text/plain") {
		t.Errorf("a program gets %s at /", h.Get("Content-Type"))
	}
	if status, h := get("/console/", "text/html"); status != http.StatusMovedPermanently || h.Get("Location") != "../console" {
		t.Errorf("/console/ leads to %q with %d", h.Get("Location"), status)
	}
	b := open(t, s)
	b.until("markup is refused", `(() => { try { document.body.innerHTML = "<b>x</b>"; } catch (e) { return e instanceof TypeError; } })()`)
	proctest.Eventually(t, "the browser's log tells", func() bool { return b.forgive("TrustedHTML") > 0 })
}
