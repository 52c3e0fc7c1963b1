// Package console tests the console in a real Chromium, over a real service.
package console

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

func TestMain(m *testing.M) {
	code := proctest.Main(m)
	if running.end != nil {
		running.end()
	}
	os.Exit(code)
}

// running is the browser of all tabs, from the first one on.
var running struct {
	once sync.Once
	ctx  context.Context
	end  context.CancelFunc
}

// patience is how long the page may take to show what it should.
const patience = time.Minute

// tab is a tab of the browser.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu         sync.Mutex
	complaints []string // of the page's console, and what it asked of others
	host       string
}

// open opens the console of a service. What the browser complains of fails the test.
func open(t *testing.T, s *proctest.Service) *tab {
	t.Helper()
	path := chromium(t)
	running.once.Do(func() { start(t, path) })
	ctx, closeTab := chromedp.NewContext(running.ctx)
	t.Cleanup(closeTab)
	b := &tab{t: t, ctx: ctx, host: s.Admin}
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, c := range b.complaints {
			t.Error(c)
		}
	})
	if err := chromedp.Listen(ctx, b.note); err != nil {
		t.Fatal(err)
	}
	call(b, log.Enable, cdp.Empty{})
	call(b, network.Enable, network.EnableParams{})
	b.do(chromedp.Navigate("http://" + s.Admin + "/"))
	b.until("the page is live", `document.body.dataset.state === "live"`)
	return b
}

// start starts the browser, which outlives t.
func start(t *testing.T, path string) {
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.WindowSize(1400, 1000))
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	browser, end := chromedp.NewExecAllocator(context.Background(), options...)
	running.ctx, running.end = chromedp.NewContext(browser)
	closeBrowser := running.end
	running.end = func() {
		closeBrowser()
		end()
	}
	if err := chromedp.Do(running.ctx); err != nil {
		t.Fatalf("starting %s: %v", path, err)
	}
}

func chromium(t *testing.T) string {
	t.Helper()
	name := os.Getenv("CHROMIUM_BIN")
	if name == "" {
		name = "chromium"
	}
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("chromium is needed: run scripts/test-deps, or say where it is by CHROMIUM_BIN (%v)", err)
	}
	return path
}

// note remembers what the browser says of the page.
func (b *tab) note(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *log.EventEntryAdded:
		b.complaints = append(b.complaints, fmt.Sprintf("the browser's log: %s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL))
	case *runtime.EventConsoleAPICalled:
		text, _ := json.Marshal(e.Args) // of JSON
		b.complaints = append(b.complaints, fmt.Sprintf("console.%s: %s", e.Type, text))
	case *runtime.EventExceptionThrown:
		text := e.ExceptionDetails.Text
		if thrown := e.ExceptionDetails.Exception; thrown != nil {
			text += " " + thrown.Description
		}
		b.complaints = append(b.complaints, "an exception: "+text)
	case *network.EventRequestWillBeSent:
		if !strings.HasPrefix(e.Request.URL, "http://"+b.host+"/") {
			b.complaints = append(b.complaints, "asked of another host: "+e.Request.URL)
		}
	}
}

// forgive forgets complaints that have a text in them, and returns how many there were.
func (b *tab) forgive(text string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	kept := b.complaints[:0]
	for _, c := range b.complaints {
		if strings.Contains(c, text) {
			n++
			continue
		}
		kept = append(kept, c)
	}
	b.complaints = kept
	return n
}

func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// call has the browser run a command.
func call[P, R any](b *tab, command cdp.Command[P, R], params P) {
	b.t.Helper()
	if _, err := chromedp.Call(b.ctx, command, params); err != nil {
		b.t.Fatal(err)
	}
}

// eval returns what an expression comes to.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	value, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return value
}

// until waits for an expression to be true.
func (b *tab) until(what, expression string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("Boolean("+expression+")"))
		if ok {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			b.t.Fatalf("waited %s in vain: %s (%v); the page shows:\n%s", patience, what, err, eval[string](b, "document.body.innerText"))
		}
	}
}

// shows waits for a text in an element.
func (b *tab) shows(selector, text string) {
	b.t.Helper()
	b.until(fmt.Sprintf("%q in %s", text, selector), fmt.Sprintf("document.querySelector(%q)?.innerText.includes(%q)", selector, text))
}

// row is the expression for the row of the tree whose name is as given.
func row(name string) string {
	return fmt.Sprintf(`[...document.querySelectorAll(".grid .row")].find((r) => r.querySelector(".name")?.innerText === %q)`, name)
}

// press presses keys, one after the other: characters, or those of chromedp's kb.
func (b *tab) press(keys ...string) {
	b.t.Helper()
	for _, key := range keys {
		b.do(chromedp.KeyEvent(key))
	}
}

// prefers sets what the system is said to prefer.
func (b *tab) prefers(scheme string) {
	b.t.Helper()
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}})
}
