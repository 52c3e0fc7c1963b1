package accesslog_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/envoy-rls/envoy-rls/internal/accesslog"
)

// Lines of each format, as its programs write them.
const (
	commonLine   = `192.0.2.7 - ann [10/Oct/2026:13:55:36 -0700] "GET /a b?x=1 HTTP/1.1" 200 2326`
	combinedLine = commonLine + ` "http://example.com/" "Mozilla/5.0 (\"quoted\" \\ \x41)"`
	nginxLine    = combinedLine + ` "198.51.100.1, 203.0.113.9"`
	envoyLine    = `[2026-10-10T20:55:36.123Z] "POST /api/v1/locations HTTP/2" 204 - 154 0 226 100 "10.0.35.28, 203.0.113.9" ` +
		`"nsq2http" "cc21d9b0-cf5c-432b-8c7e-98aeb7988cd2" "locations" "tcp://10.0.2.1:80"`
	istioLine = `[2026-10-10T20:55:36.123Z] "GET /status/418 HTTP/1.1" 418 - via_upstream - "-" 0 135 4 4 "-" "curl/7.73.0-DEV" ` +
		`"84961386-6d84-929d-98bd-c5aee93b5c88" "httpbin:8000" "10.44.1.27:80" outbound|8000||httpbin.foo.svc.cluster.local ` +
		`10.44.1.23:37652 10.0.45.184:8000 [2001:db8::7]:46520 - default`
	jsonLine = `{"time": "2026-10-10T20:55:36.123Z", "user": {"id": 7, "a.b": true}, "user.name": "ann", "tags": ["x"], "none": null, "dash": "-", "bad": "\ud800"}`
)

func TestEachFormatHasItsFields(t *testing.T) {
	at := time.Date(2026, 10, 10, 20, 55, 36, 0, time.UTC)
	for _, c := range []struct {
		line         string
		format       accesslog.Format
		at           time.Time
		fields, want string
	}{
		{commonLine, accesslog.Common, at, "remote_address|ident|user|method|path|protocol|status|bytes|referer",
			"192.0.2.7||ann|GET|/a b?x=1|HTTP/1.1|200|2326|"},
		{combinedLine, accesslog.Common, at, "referer|user_agent|x_forwarded_for", `http://example.com/|Mozilla/5.0 ("quoted" \ A)|`},
		{nginxLine, accesslog.Common, at, "remote_address|x_forwarded_for", `192.0.2.7|198.51.100.1, 203.0.113.9`},
		{nginxLine + ` 0.003 "upstream"`, accesslog.Common, at, "status|x_forwarded_for", `200|198.51.100.1, 203.0.113.9`},
		{`- - - [2026-10-10T20:55:36+00:00] "-" 408 0`, accesslog.Common, at, "remote_address|method|path|protocol", "|||"},
		{`h - - [10/Oct/2026:13:55:36 -0700] "\d" 400 0`, accesslog.Common, at, "method|path", `\d|`},
		{envoyLine, accesslog.Envoy, at.Add(123 * time.Millisecond), "method|path|protocol|response_code|response_flags|bytes_received|remote_address|authority|upstream_host|route_name",
			"POST|/api/v1/locations|HTTP/2|204||154|203.0.113.9|locations|tcp://10.0.2.1:80|"},
		{istioLine, accesslog.Envoy, at.Add(123 * time.Millisecond), "path|remote_address|downstream_remote_address|user_agent|route_name|requested_server_name",
			"/status/418|2001:db8::7|[2001:db8::7]:46520|curl/7.73.0-DEV|default|"},
		{jsonLine, accesslog.JSON, at.Add(123 * time.Millisecond), "user.id|user.name|user|tags|none|dash|missing|bad", "7|ann||||||\uFFFD"},
		{`{"ts": 1791665736.5, "a*b": "star", "a": {"b|c": 1}}`, accesslog.JSON, at.Add(time.Second / 2), "a*b|a.b", "star|"},
		{`{"@timestamp": 1791665736000}`, accesslog.JSON, at, "#", ""},
	} {
		if got := accesslog.Detect([]byte(c.line)); got != c.format {
			t.Errorf("%s looks like %s, want %s", c.line, got, c.format)
		}
		p, err := accesslog.NewParser(c.format, strings.Split(c.fields, "|"), "")
		if err != nil {
			t.Errorf("%s: %v", c.fields, err)
			continue
		}
		r, err := p.Parse([]byte(c.line))
		if got := strings.Join(r.Fields, "|"); err != nil || got != c.want || r.At != c.at.UnixMicro() {
			t.Errorf("%s: %s is at %s\n%s, want at %s\n%s (%v)", c.line, c.fields, time.UnixMicro(r.At).UTC(), got, c.at, c.want, err)
		}
	}
}

func TestTimesAreReadInTheirUnits(t *testing.T) {
	want := time.Date(2026, 10, 10, 20, 55, 36, 0, time.UTC).UnixMicro()
	for _, text := range []string{
		`1791665736`, `"1791665736"`, `1791665736.0`, `1791665736000`, `1791665736000.0`, `1791665736000000`, `1791665736000000000`,
		`"2026-10-10T22:55:36+02:00"`, `"10/Oct/2026:20:55:36 +0000"`,
	} {
		p, err := accesslog.NewParser(accesslog.JSON, nil, "at.it")
		if err != nil {
			t.Fatal(err)
		}
		if r, err := p.Parse([]byte(`{"time": "x", "at": {"it": ` + text + `}}`)); err != nil || r.At != want {
			t.Errorf("%s is %d (%v), want %d", text, r.At, err, want)
		}
	}
}

func TestWhatIsWrongIsSaidWithoutTheLine(t *testing.T) {
	for _, c := range []struct {
		format     accesslog.Format
		line, want string
	}{
		{accesslog.Common, `secret`, "1 columns, where common format has 7 or 9 or 10"},
		{accesslog.Envoy, commonLine, "7 columns, where envoy format has 13 or 22"},
		{accesslog.Common, `h - - [secret] "GET / HTTP/1.1" 200 5`, "the time is none such as"},
		{accesslog.Common, `h - - [10/Oct/1926:13:55:36 -0700] "GET / HTTP/1.1" 200 5`, "the time is outside of the years 1970 to 2099"},
		{accesslog.Common, `h - - [10/Oct/2026:13:55:36 -0700] "GET / 200 5`, "a quoted column has no end"},
		{accesslog.Common, "h\xff" + commonLine, "the line is not UTF-8"},
		{accesslog.Common, `h - \xff [10/Oct/2026:13:55:36 -0700] "\xff" 200 5`, "the line is not UTF-8"},
		{accesslog.JSON, `{"secret": 1`, "the line is not JSON"},
		{accesslog.JSON, `["secret"]`, "the line is not a JSON object"},
		{accesslog.JSON, `{"secret": 1}`, "the line has no time"},
		{accesslog.JSON, `{"time": "secret"}`, "the time is none such as"},
		{accesslog.JSON, `{"time": 1e300.5}`, "the line is not JSON"},
		{accesslog.JSON, `{"time": "1..9"}`, "the time is none such as"},
	} {
		field := []string{"user"}
		if c.format == accesslog.Envoy {
			field = nil
		}
		p, err := accesslog.NewParser(c.format, field, "")
		if err != nil {
			t.Fatal(err)
		}
		_, err = p.Parse([]byte(c.line))
		if err == nil || !strings.HasPrefix(err.Error(), c.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %s", c.line, err, c.want)
		}
	}
}

func TestAnUnknownFieldIsToldWithThoseThereAre(t *testing.T) {
	_, err := accesslog.NewParser(accesslog.Common, []string{"path", "pth"}, "")
	want := "a line in common format has no field pth; there are bytes, ident, method, path, protocol, referer, " +
		"remote_address, status, user, user_agent, x_forwarded_for"
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if _, err := accesslog.NewParser(accesslog.Envoy, nil, "time"); err == nil {
		t.Error("a field for the time of lines without fields is no mistake")
	}
}

func TestLinesOfAllKindsAreRead(t *testing.T) {
	text := "\ufeffone\n\r\n\ntwo\r\n" + strings.Repeat("x", accesslog.MaxLine+1) + "\n" + strings.Repeat("y", accesslog.MaxLine) + "\n" +
		strings.Repeat("z", 5*accesslog.MaxLine) + "\nlast"
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = io.WriteString(z, text) // to memory
	_ = z.Close()
	for name, log := range map[string]io.Reader{"plain": strings.NewReader(text), "gzip": &zipped} {
		lines, err := accesslog.NewLines(log)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for {
			line, err := lines.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			got = append(got, fmt.Sprintf("%d:%.3s:%v", lines.Number, line, err))
		}
		long := accesslog.ErrLong.Error()
		if want := []string{"1:one:<nil>", "4:two:<nil>", "5::" + long, "6:yyy:<nil>", "7::" + long, "8:las:<nil>"}; !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestABrokenGzipIsAnError(t *testing.T) {
	if _, err := accesslog.NewLines(strings.NewReader("\x1f\x8b, they say")); err == nil {
		t.Error("it is read")
	}
}

// fuzzed checks what holds for whatever a line is.
func fuzzed(f *testing.F, format accesslog.Format, fields []string, lines ...string) {
	for _, line := range lines {
		f.Add([]byte(line))
	}
	p, err := accesslog.NewParser(format, fields, "")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		if len(line) == 0 {
			return // Lines has none
		}
		before := bytes.Clone(line)
		r, err := p.Parse(line)
		if !bytes.Equal(line, before) {
			t.Errorf("the line has become %q", line)
		}
		if err != nil {
			return
		}
		if r.At < 0 || r.At > 4_200_000_000_000_000 || len(r.Fields) != len(fields) {
			t.Errorf("%+v", r)
		}
		for _, text := range r.Fields {
			if text == "-" && format == accesslog.JSON || strings.ToValidUTF8(text, "") != text {
				t.Errorf("a field is %q", text)
			}
		}
		accesslog.Detect(line)
	})
}

func FuzzCommon(f *testing.F) {
	fuzzed(f, accesslog.Common, accesslog.FieldsOf(accesslog.Common), commonLine, combinedLine, nginxLine)
}

func FuzzEnvoy(f *testing.F) {
	fuzzed(f, accesslog.Envoy, accesslog.FieldsOf(accesslog.Envoy), envoyLine, istioLine)
}

func FuzzJSON(f *testing.F) {
	fuzzed(f, accesslog.JSON, []string{"user.id", "user.name", "a", "tags"}, jsonLine, `{"ts":1.5}`, `{"a":`+strings.Repeat("[", 100))
}

func FuzzLines(f *testing.F) {
	f.Add([]byte("a\nb\r\n\nc"))
	f.Add([]byte("\x1f\x8b\x08"))
	f.Fuzz(func(t *testing.T, log []byte) {
		lines, err := accesslog.NewLines(bytes.NewReader(log))
		for err == nil {
			var line []byte
			if line, err = lines.Next(); err == nil && (len(line) == 0 || bytes.ContainsRune(line, '\n')) {
				t.Errorf("line %d is %q", lines.Number, line)
			}
		}
	})
}
