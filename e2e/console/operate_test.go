package console

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

const token = "a-token-for-tests-only"

// operated are replicas over one Redis, with the rules of shop, and a token of ann's.
func operated(t *testing.T, replicas int) ([]*proctest.Service, rules) {
	t.Helper()
	r := newRules(t, map[string]string{"shop.yaml": shopRules, "depot.yaml": depotRules})
	tokens := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(tokens, []byte("ann "+token), 0o600); err != nil {
		t.Fatal(err)
	}
	redis := proctest.StartRedis(t)
	list := make([]*proctest.Service, replicas)
	for i := range list {
		list[i] = proctest.StartService(t, r.flag(), "--redis="+redis.URL(), "--store-timeout=5s", "--admin-token-file="+tokens)
	}
	return list, r
}

// give gives the page a token.
func (b *tab) give(secret string) {
	b.t.Helper()
	b.do(chromedp.Click(chromedp.CSS("#token")))
	b.until("it asks for a token", `document.activeElement.id === "token-input"`)
	b.write(secret + kb.Enter)
}

// operate gives it the right one, and opens the details of a rule.
func (b *tab) operate(rule string) {
	b.t.Helper()
	b.give(token)
	b.shows("#by", "as ann@127.0.0.1")
	b.choose(rule)
	b.until("a rule can be overridden", `document.querySelector("form.override")`)
}

// write presses the keys of a text.
func (b *tab) write(text string) {
	b.t.Helper()
	b.press(strings.Split(text, "")...)
}

func (b *tab) choose(rule string) {
	b.t.Helper()
	b.until("the rule", row(rule))
	eval[any](b, row(rule)+".click()")
}

// fill fills in a field of the form for overrides, and tells it as a browser does.
func (b *tab) fill(name, value string) {
	b.t.Helper()
	eval[any](b, fmt.Sprintf(`(() => { const e = document.querySelector("form.override [name=%s]"); e.value = %q; e.dispatchEvent(new Event("change")); })()`, name, value))
}

// admits tells whether a service admits a descriptor of shop.
func admits(t *testing.T, s *proctest.Service, entries ...string) bool {
	t.Helper()
	return send(t, s, &ratelimit.RateLimitRequest{
		Domain: "shop", Descriptors: []*common.RateLimitDescriptor{descriptor(entries...)},
	}).GetOverallCode() == ratelimit.RateLimitResponse_OK
}

// nothing is true while the page has nothing that changes anything.
const nothing = `!document.querySelector("form.override, #overrides button, #try .answer button")`

func TestWithoutATokenThePageOnlyShows(t *testing.T) {
	t.Parallel()
	list, _ := operated(t, 1)
	operator, reader := open(t, list[0]), open(t, list[0])
	operator.operate("user")
	operator.fill("reason", "INC-1")
	operator.do(chromedp.Click(chromedp.CSS("form.override .primary")))

	reader.shows("#overrides li", "shadow")
	reader.choose("user")
	reader.do(chromedp.Click(chromedp.CSS(".detail button")))
	reader.write("ann" + kb.Enter)
	reader.shows("#try .verdict", "OK")
	reader.until("there is nothing to change it with", nothing)
	reader.shows("#token", "Read-only")

	operator.do(chromedp.Click(chromedp.CSS("#token")))
	operator.shows("#token", "Read-only")
	operator.until("it is gone with the token", nothing)
}

func TestATokenThatIsWrongIsTold(t *testing.T) {
	t.Parallel()
	list, _ := operated(t, 1)
	b := open(t, list[0])
	for _, wrong := range []string{"another-" + token, "not in ASCII: ü"} {
		b.give(wrong)
		b.shows("#token-said", "The service doesn't know this token")
		b.press(kb.Escape)
		b.until("it can be left", `!document.querySelector("#token-dialog").open && document.querySelector("#token-said").innerText === ""`)
		b.shows("#token", "Read-only")
		b.until("there is nothing to change anything with", nothing)
	}
	b.give("another-" + token)
	b.shows("#token-said", "The service doesn't know this token")
	b.write(token + kb.Enter) // in the place of the wrong one
	b.shows("#by", "as ann@127.0.0.1")
	if n := b.forgive("401 (Unauthorized)"); n != 2 {
		t.Errorf("a token was refused %d times", n)
	}
}

func TestAServiceThatHasNoTokenSaysWhatToDo(t *testing.T) {
	t.Parallel()
	s, _ := shop(t)
	b := open(t, s)
	b.give(token)
	b.shows("#token-said", "start it with --admin-token-file")
	b.forgive("403 (Forbidden)")
}

func TestAnOverrideIsSetAndEndedOnAllReplicas(t *testing.T) {
	t.Parallel()
	list, _ := operated(t, 2)
	b, other := open(t, list[0]), open(t, list[1])
	other.shows("#overrides", "All rules stand as they are written")
	b.operate("user")
	b.fill("kind", "limit")
	b.fill("limit", "1/day")
	b.fill("match", "bob")
	b.do(chromedp.Click(chromedp.CSS("form.override .primary")))
	b.until("a reason is asked for", `document.activeElement.name === "reason" && document.activeElement.matches(":invalid")`)
	b.write("INC-1")
	b.fill("for", "25h")
	b.do(chromedp.Click(chromedp.CSS("form.override .primary")))
	b.shows("form.override .problem", "for is from 1s to 24h")
	b.forgive("400 (Bad Request)")
	b.fill("for", "2h")
	b.do(chromedp.Click(chromedp.CSS("form.override .primary")))
	b.shows("form.override .said", "Set: limit 1 per day")

	for _, on := range []*tab{b, other} {
		on.shows("#overrides li", "shop.user limit 1 per day where user=bob")
		on.shows("#overrides li", "ends in 1h 59m · by ann@127.0.0.1 · INC-1")
		on.until("the tree tells", cells("user")+`.startsWith("user 3 per day limit 1 per day, for some ")`)
	}
	for user, want := range map[string]bool{"bob": false, "ann": true} {
		ask(t, list[0], 1, "shop", "user", user)
		if got := admits(t, list[1], "user", user); got != want {
			t.Errorf("the second call of %s is admitted: %t", user, got)
		}
	}

	other.give(token)
	other.do(chromedp.Click(chromedp.CSS("#overrides li button")))
	for _, on := range []*tab{b, other} {
		on.shows("#overrides", "All rules stand as they are written")
		on.until("the tree tells", cells("user")+`.startsWith("user 3 per day ") && !`+cells("user")+`.includes("limit")`)
	}
	if !admits(t, list[0], "user", "bob") {
		t.Error("it has ended, and yet is in force")
	}
}

// TestALimitOfSeveralIsOverridden, by its own row.
func TestALimitOfSeveralIsOverridden(t *testing.T) {
	t.Parallel()
	list, _ := operated(t, 1)
	b := open(t, list[0])
	b.operate("/slow")
	b.fill("reason", "INC-1")
	b.fill("kind", "limit")
	b.fill("limit", "0/day")
	b.do(chromedp.Click(chromedp.CSS("form.override .primary")))
	b.shows("#overrides li", "shop.tenant_acme.path/slow limit 0 per day")
	b.until("the tree tells", cells("/slow")+`.includes("limit 0 per day")`)
	if admits(t, list[0], "tenant", "acme", "path", "/") {
		t.Error("it is not in force")
	}
	for _, width := range []int64{320, 390, 768} {
		b.do(chromedp.EmulateViewport(width, 800))
		if over := eval[int64](b, "document.documentElement.scrollWidth - innerWidth"); over > 0 {
			t.Errorf("at a width of %d, %d pixels are out of sight", width, over)
		}
	}
}

func TestAResetLiftsARefusal(t *testing.T) {
	t.Parallel()
	list, _ := operated(t, 2)
	b := open(t, list[0])
	b.operate("user")
	ask(t, list[1], 5, "shop", "user", "ann") // which remembers the refusals
	b.do(chromedp.Click(chromedp.CSS(".detail button")))
	b.write("ann" + kb.Enter)
	b.shows("#try .verdict", "Over limit")
	b.do(chromedp.Click(chromedp.CSS("#try .answer button")))
	b.shows("#try .said", "1 counter reset")
	b.shows("#try .verdict", "OK")
	b.shows("#try .limit", "3 of 3 left")
	proctest.Eventually(t, "the other replica admits again", func() bool { return admits(t, list[1], "user", "ann") })
}

func TestOverridingNeedsNoMouse(t *testing.T) {
	t.Parallel()
	list, _ := operated(t, 1)
	b := open(t, list[0])
	b.until("rules", row("user"))
	b.tabTo(`.id === "token"`)
	b.press(kb.Enter)
	b.until("it asks for a token", `document.activeElement.id === "token-input"`)
	b.write(token + kb.Enter)
	b.until("the focus is where it was", `document.activeElement.id === "token"`)
	b.tabTo(` === ` + row("depot"))
	b.press(kb.ArrowDown, kb.ArrowDown, kb.ArrowDown, kb.Enter)
	b.tabTo(`.name === "kind"`)
	b.press("d")
	b.until("it denies", `document.activeElement.value === "deny"`)
	b.tabTo(`.name === "reason"`)
	b.write("INC-1" + kb.Enter)
	b.shows("#overrides li", "shop.user deny")
	b.until("the focus has stayed", `document.activeElement.name === "reason"`)
	b.tabTo(`.innerText === "End it"`)
	left := `document.querySelector("#overrides li .quiet").innerText`
	was := eval[string](b, left)
	b.until("time passes", fmt.Sprintf("%s !== %q", left, was))
	b.until("the focus has stayed", `document.activeElement.innerText === "End it"`)
	b.press(kb.Enter)
	b.shows("#overrides", "All rules stand as they are written")
	b.until("the focus is where it was", `document.activeElement.id === "overrides"`)
}

// tabTo presses Tab until what follows is true of the element that has the focus.
func (b *tab) tabTo(is string) {
	b.t.Helper()
	for range 30 {
		b.press(kb.Tab)
		if eval[bool](b, "document.activeElement"+is) {
			return
		}
	}
	b.t.Fatalf("no Tab leads to what is %s", is)
}

func TestWhatIsTypedOutlivesAReload(t *testing.T) {
	t.Parallel()
	list, r := operated(t, 1)
	b := open(t, list[0])
	b.operate("user")
	b.do(chromedp.Focus(chromedp.CSS("form.override [name=reason]")))
	b.write("INC-")
	r.write("depot.yaml", strings.Replace(depotRules, "requests_per_unit: 1", "requests_per_unit: 2", 1))
	b.until("rules are others", cells("bay")+`.includes("2 per day")`)
	b.write("1")
	b.until("what was typed is there", `document.activeElement.name === "reason" && document.activeElement.value === "INC-1"`)
	ask(t, list[0], 1, "shop", "user", "ann")
	b.shows(".detail .facts", "1 of 1,000,000")
	r.write("shop.yaml", strings.Replace(shopRules, "requests_per_unit: 3", "requests_per_unit: 4", 1))
	b.shows(".detail .sentence", "4 per day")
	b.until("the focus is on the rule's row", "document.activeElement === "+row("user"))
}
