package e2e

import (
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"text/template"
	"time"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/envoycheck"
)

// networkTests have, by the domain of a filter of connections, its descriptors, and what Envoy sends for a connection.
var networkTests = map[string]struct {
	descriptors string
	sent        []string
}{
	"literal":       {`[{entries: [{key: listener, value: redis}]}]`, []string{"listener=redis"}},
	"two_entries":   {`[{entries: [{key: a, value: "1"}, {key: b, value: "2"}]}]`, []string{"a=1  b=2"}},
	"two":           {`[{entries: [{key: a, value: "1"}]}, {entries: [{key: b, value: "2"}]}]`, []string{"a=1", "b=2"}},
	"format":        {`[{entries: [{key: client, value: "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%"}]}]`, []string{"client=127.0.0.1"}},
	"within":        {`[{entries: [{key: client, value: "of %DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%."}]}]`, []string{"client=of 127.0.0.1."}},
	"absent":        {`[{entries: [{key: name, value: "%REQUESTED_SERVER_NAME%"}]}]`, []string{"name=-"}},
	"percent":       {`[{entries: [{key: share, value: "50%% of it"}]}]`, []string{"share=50% of it"}},
	"format_of_key": {`[{entries: [{key: "%PROTOCOL%", value: a}]}]`, []string{"%PROTOCOL%=a"}},
	"limit":         {`[{entries: [{key: a, value: "1"}], limit: {requests_per_unit: 3, unit: MINUTE}}]`, []string{"a=1"}},
	"hits_addend":   {`[{entries: [{key: a, value: "1"}], hits_addend: 3}]`, []string{"a=1"}},
}

func TestWhatIsPredictedOfConnectionsIsWhatEnvoySends(t *testing.T) {
	r, recorderPort := startRecorder(t)
	type filter struct {
		Descriptors string
		Port        int
	}
	admin, filters, written := proctest.FreePort(t), map[string]filter{}, &strings.Builder{}
	for name, test := range networkTests {
		filters[name] = filter{test.descriptors, proctest.FreePort(t)}
	}
	page, err := template.ParseFiles("testdata/network.yaml.tmpl")
	if err == nil {
		err = page.Execute(written, map[string]any{"Admin": admin, "Recorder": recorderPort, "Filters": filters})
	}
	if err != nil {
		t.Fatal(err)
	}
	proctest.Envoy(t, written.String(), admin)
	for name, config := range map[string]string{"as written": written.String(), "as dumped": dumpOf(t, admin)} {
		sends := predicted(t, config)
		for domain, test := range networkTests {
			t.Run(name+"/"+domain, func(t *testing.T) {
				i := slices.IndexFunc(sends, func(s envoycheck.Send) bool { return s.Domain == domain })
				if i < 0 || len(sends[i].Descriptors) != len(test.sent) {
					t.Fatalf("predicted is %v", sends)
				}
				if err := connect(filters[domain].Port); err != nil {
					t.Fatal(err)
				}
				r.hasNothingBesideEntries(t)
				compareConnection(t, r.take(), test.sent, sends[i].Descriptors)
			})
		}
	}
}

// compareConnection compares what was asked for a connection with what a test says, and what was predicted.
func compareConnection(t *testing.T, asked [][]descriptors.Entry, sent []string, predicted []envoycheck.Descriptor) {
	t.Helper()
	for j, p := range predicted {
		if len(asked) != len(sent) || entriesText(asked[j:]) != sent[j] {
			t.Fatalf("Envoy sends %v", asked)
		}
		if len(p.Shapes) != 1 || !fits(asked[j], p.Shapes[0]) || p.Droppable || p.OnDone {
			t.Errorf("Envoy sends %v, predicted is %+v", asked[j], p)
		}
	}
}

// connect connects, and waits until Envoy has ended that.
func connect(port int) error {
	conn, err := net.DialTimeout("tcp", fmt.Sprint("127.0.0.1:", port), 10*time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return err
	}
	_, err = io.ReadAll(conn)
	return err
}
