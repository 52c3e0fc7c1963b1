package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"text/template"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
	"github.com/envoy-rls/envoy-rls/pkg/envoycheck"
)

const xffExtension = `original_ip_detection_extensions: [{name: xff, typed_config: {"@type": type.googleapis.com/envoy.extensions.http.original_ip_detection.xff.v3.XffConfig, %s}}]`

// clientTests have, by the name of a listener, what its connection manager is told of who the client is, and whom it takes for it
// where x-forwarded-for isn't there, has one entry (192.0.2.1), and has three.
var clientTests = map[string]struct{ fields, none, one, three string }{
	"nothing":            {"", "127.0.0.1", "192.0.2.1", "192.0.2.3"},
	"forwarded":          {"use_remote_address: false", "127.0.0.1", "192.0.2.1", "192.0.2.3"},
	"forwarded-by-1":     {"xff_num_trusted_hops: 1", "127.0.0.1", "127.0.0.1", "192.0.2.2"},
	"remote":             {"use_remote_address: true", "127.0.0.1", "127.0.0.1", "127.0.0.1"},
	"remote-behind-1":    {"use_remote_address: true\n                xff_num_trusted_hops: 1", "127.0.0.1", "192.0.2.1", "192.0.2.3"},
	"remote-behind-2":    {"use_remote_address: true\n                xff_num_trusted_hops: 2", "127.0.0.1", "127.0.0.1", "192.0.2.2"},
	"extension":          {fmt.Sprintf(xffExtension, "xff_num_trusted_hops: 0"), "127.0.0.1", "192.0.2.1", "192.0.2.3"},
	"extension-behind-2": {fmt.Sprintf(xffExtension, "xff_num_trusted_hops: 2"), "127.0.0.1", "127.0.0.1", "192.0.2.1"},
}

func TestThePredictedClientIsWhomEnvoyTakesForIt(t *testing.T) {
	type listener struct {
		Name, Fields string
		Port         int
	}
	var listeners []listener
	for name, test := range clientTests {
		listeners = append(listeners, listener{name, test.fields, proctest.FreePort(t)})
	}
	r, recorderPort := startRecorder(t)
	admin, written := proctest.FreePort(t), &strings.Builder{}
	page, err := template.ParseFiles("testdata/addresses.yaml.tmpl")
	if err == nil {
		err = page.Execute(written, map[string]any{"Admin": admin, "Recorder": recorderPort, "Listeners": listeners})
	}
	if err != nil {
		t.Fatal(err)
	}
	proctest.Envoy(t, written.String(), admin)
	sends, dumped := predicted(t, written.String()), predicted(t, dumpOf(t, admin))
	for _, l := range listeners {
		t.Run(l.Name, func(t *testing.T) {
			of := func(s envoycheck.Send) bool { return s.Domain == l.Name }
			i, j := slices.IndexFunc(sends, of), slices.IndexFunc(dumped, of)
			if i < 0 || j < 0 || !sends[i].Client.Known || sends[i].Client != dumped[j].Client {
				t.Fatalf("predicted is %v, and by the dump %v", sends, dumped)
			}
			test := clientTests[l.Name]
			for header, want := range map[string]string{"": test.none, "192.0.2.1": test.one, "192.0.2.1, 192.0.2.2, 192.0.2.3": test.three} {
				var headers []string
				if header != "" {
					headers = []string{"x-forwarded-for: " + header}
				}
				if _, err := get(fmt.Sprintf("http://127.0.0.1:%d/", l.Port), headers); err != nil {
					t.Fatal(err)
				}
				if got := entriesText(r.take()); got != "remote_address="+want {
					t.Errorf("x-forwarded-for %q: Envoy sends %s, not %s", header, got, want)
				}
				if got := clientOf(header, sends[i].Client); got != want {
					t.Errorf("x-forwarded-for %q: predicted is %s, not %s", header, got, want)
				}
			}
		})
	}
}

// clientOf is the client that is predicted for x-forwarded-for, where 127.0.0.1 connects.
func clientOf(header string, c envoycheck.Client) string {
	if entries := strings.Split(header, ", "); header != "" && c.Entry > 0 && c.Entry <= len(entries) {
		return entries[len(entries)-c.Entry]
	}
	return "127.0.0.1"
}
