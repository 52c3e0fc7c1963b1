package e2e

import (
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"
	"text/template"
	"time"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
	"github.com/envoy-rls/envoy-rls/pkg/envoycheck"
)

// thriftTests have, by the name of a method, a limit of its route, and calls as in actionTests.
var thriftTests = map[string]struct{ limit, script string }{
	"generic_key":         {`{actions: [{generic_key: {descriptor_value: a}}]}`, `-> generic_key=a`},
	"generic_key_named":   {`{actions: [{generic_key: {descriptor_key: k, descriptor_value: a}}]}`, `-> generic_key=a`},
	"source_cluster":      {`{actions: [{source_cluster: {}}]}`, `-> source_cluster=edge`},
	"destination_cluster": {`{actions: [{destination_cluster: {}}]}`, `-> destination_cluster=upstream`},
	"remote_address":      {`{actions: [{remote_address: {}}]}`, `x-forwarded-for: 192.0.2.1 -> remote_address=127.0.0.1`},
	"request_headers": {`{actions: [{request_headers: {header_name: x-a, descriptor_key: a}}]}`, `
x-a: 1 -> a=1
x-a:  -> a=
-> none`},
	"request_headers_skipped": {`{actions: [{generic_key: {descriptor_value: k}}, {request_headers: {header_name: x-a, descriptor_key: a, skip_if_absent: true}}]}`, `
x-a: 1 -> generic_key=k  a=1
-> none`},
	"method": {`{actions: [{request_headers: {header_name: ":method-name", descriptor_key: m}}]}`, `-> m=method`},
	"header_value_match": {`{actions: [{header_value_match: {descriptor_value: v, headers: [{name: x-a, string_match: {exact: "1"}}]}}]}`, `
x-a: 1 -> header_match=v
-> none`},
	"header_value_match_named": {`{actions: [{header_value_match: {descriptor_key: k, descriptor_value: v, expect_match: false, headers: [{name: x-a, string_match: {exact: "1"}}]}}]}`, `
x-a: 1 -> none
-> header_match=v`},
	"hits_addend":          {`{actions: [{generic_key: {descriptor_value: a}}], hits_addend: {number: 3}}`, `-> generic_key=a`},
	"limit":                {`{actions: [{generic_key: {descriptor_value: a}}], limit: {rate_limit: {unit: MINUTE, requests_per_unit: 3}}}`, `-> generic_key=a`},
	"apply_on_stream_done": {`{actions: [{generic_key: {descriptor_value: a}}], apply_on_stream_done: true}`, `-> generic_key=a`},
	"stage":                {`{actions: [{generic_key: {descriptor_value: a}}], stage: 1}`, `-> none`},
}

func TestWhatIsPredictedOfThriftIsWhatEnvoySends(t *testing.T) {
	r, recorderPort := startRecorder(t)
	admin, ingress, written := proctest.FreePort(t), proctest.FreePort(t), &strings.Builder{}
	methods, limits := slices.Sorted(maps.Keys(thriftTests)), map[string]string{}
	for name, test := range thriftTests {
		limits[name] = test.limit
	}
	page, err := template.ParseFiles("testdata/thrift.yaml.tmpl")
	if err == nil {
		err = page.Execute(written, map[string]any{"Admin": admin, "Port": ingress, "Recorder": recorderPort, "Limits": limits})
	}
	if err != nil {
		t.Fatal(err)
	}
	proctest.Envoy(t, written.String(), admin)
	for name, config := range map[string]string{"as written": written.String(), "as dumped": dumpOf(t, admin)} {
		sends := predicted(t, config)
		if len(sends) != len(methods) {
			t.Fatalf("%s: predicted is %v", name, sends)
		}
		for i, method := range methods {
			t.Run(name+"/"+method, func(t *testing.T) {
				predicted := envoycheck.Descriptor{Droppable: true} // none
				if len(sends[i].Descriptors) > 0 {
					predicted = sends[i].Descriptors[0]
				}
				ask := func(_ string, headers []string) error {
					defer r.hasNothingBesideEntries(t)
					return callThrift(ingress, method, headers)
				}
				checkAction(t, r, ask, thriftTests[method].script, predicted)
			})
		}
	}
}

// hasNothingBesideEntries: the descriptors that were asked lack what Thrift filters ignore.
func (r *recorder) hasNothingBesideEntries(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range r.asked {
		if d.GetLimit() != nil || d.GetHitsAddend() != nil {
			t.Errorf("Envoy sends %v", d)
		}
	}
}

// callThrift calls a method without arguments, by the header transport and the binary protocol, and waits for its answer.
func callThrift(port int, method string, headers []string) error {
	info := []byte{0, 0} // the binary protocol, no transforms
	if len(headers) > 0 {
		info = append(info, 1, byte(len(headers)))
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ":")
		for _, text := range []string{name, strings.TrimSpace(value)} {
			info = append(append(info, byte(len(text))), text...)
		}
	}
	for len(info)%4 != 0 {
		info = append(info, 0)
	}
	frame := []byte{0, 0, 0, 0, 0x0f, 0xff, 0, 0, 0, 0, 0, 1} // its size, the transport's number, no flags, the first call
	frame = binary.BigEndian.AppendUint16(frame, uint16(len(info)/4))
	frame = append(append(frame, info...), 0x80, 1, 0, 1) // the protocol's version, a call
	frame = binary.BigEndian.AppendUint32(frame, uint32(len(method)))
	frame = append(append(frame, method...), 0, 0, 0, 1, 0) // the first call, and the end of its arguments
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))

	conn, err := net.DialTimeout("tcp", fmt.Sprint("127.0.0.1:", port), 10*time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return err
	}
	if _, err := conn.Write(frame); err != nil {
		return err
	}
	_, err = io.ReadFull(conn, make([]byte, 4)) // the size of the answer, which is that nobody is there
	return err
}
