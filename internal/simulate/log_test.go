package simulate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/envoy-rls/envoy-rls/internal/simulate"
)

const second = 1_000_000

// read lists what a log's requests are: seconds and user.
func read(t *testing.T, l *simulate.Log) []string {
	t.Helper()
	var err error
	if l.Mapping, err = simulate.NewMapping([]string{"user={user}"}, ""); err != nil {
		t.Fatal(err)
	}
	var got []string
	if err := l.Each(func(r *simulate.Request) bool {
		got = append(got, fmt.Sprint(r.At/second, r.Descriptors[0][0].Value))
		return true
	}); err != nil {
		t.Fatal(err)
	}
	return got
}

func line(at int, user string) string { return fmt.Sprintf(`{"time": %d, "user": %q}`, at, user) }

func TestLinesOutOfOrderAreSortedWithinAMinute(t *testing.T) {
	log := &simulate.Log{Files: []string{
		writeLog(t, "a.log", line(1000, "a"), line(1050, "b"), line(1010, "c"), line(1050, "d"), line(1070, "e"), line(1011, "f")),
		writeLog(t, "b.log.gz", line(1200, "g"), line(1012, "late"), line(1130, "later"), line(1200, "h")),
	}}
	// When 1200 is read, all up to 1140 go: then what is before 1070, the last of them, is late.
	want := []string{"1000a", "1010c", "1011f", "1050b", "1050d", "1070e", "1070late", "1130later", "1200g", "1200h"}
	for range 2 { // it can be read again
		if got := read(t, log); !slices.Equal(got, want) {
			t.Errorf("it is\n%q, want\n%q", got, want)
		}
		if log.Late != 1 || log.All != 10 || log.Bad != 0 {
			t.Errorf("%+v", log.Lines)
		}
	}
}

func TestLinesThatCannotBeReadAreCountedAndTheFirstTold(t *testing.T) {
	lines := []string{line(1000, "a"), "", `{"user": "b"}`, strings.Repeat("x", 70_000)}
	for range 10 {
		lines = append(lines, "{")
	}
	lines = append(lines, `{"time": 1001}`, line(1002, "c"))
	log := &simulate.Log{Files: []string{writeLog(t, "a.log", lines...)}}
	if got, want := read(t, log), []string{"1000a", "1002c"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if log.All != 15 || log.Bad != 12 || log.Without != 1 || len(log.Shown) != 5 {
		t.Errorf("%+v", log.Lines)
	}
	want := []string{"a.log:3: the line has no time", "a.log:4: the line is longer than 65536 bytes", "a.log:5: the line is not JSON"}
	if !slices.Equal(log.Shown[:3], want) {
		t.Errorf("%q, want %q", log.Shown, want)
	}
}

func TestARequestIsWhatTheMappingSays(t *testing.T) {
	m, err := simulate.NewMapping([]string{"generic_key=api", "path=/v1{path}", "user={user},path={path}"}, "{cost}")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := m.Fields(), []string{"path", "user", "cost"}; !slices.Equal(got, want) {
		t.Fatalf("%q, want %q", got, want)
	}
	for _, c := range []struct {
		fields []string
		want   string
	}{
		{[]string{"/a", "ann", "3"}, "[[{generic_key api}] [{path /v1/a}] [{user ann} {path /a}]] true 3"},
		{[]string{"/a", "", ""}, "[[{generic_key api}] [{path /v1/a}]] false 0"},
		{[]string{"", "ann", "0"}, "[[{generic_key api}]] true 0"},
	} {
		r, err := m.Request(1, c.fields)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(r.Descriptors, r.Costs, r.Cost); got != c.want {
			t.Errorf("%q make %s, want %s", c.fields, got, c.want)
		}
	}
	if _, err := m.Request(1, []string{"/a", "ann", "-1"}); err == nil {
		t.Error("a request gives back")
	}
}

func TestAMappingThatCannotBeReadIsAnError(t *testing.T) {
	for _, text := range []string{"", "user", "=x", "user={", "user={}", "user=}", "user={a}}", "{a}=b", "user={a},,path=/"} {
		if _, err := simulate.NewMapping([]string{text}, ""); err == nil {
			t.Errorf("%q is a mapping", text)
		}
	}
	if _, err := simulate.NewMapping(nil, ""); err == nil {
		t.Error("no descriptor is a mapping")
	}
}
