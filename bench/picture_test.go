package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// saved reads what a run left, checks that it tells nothing of this host, and gives the text.
func saved(t *testing.T, results Results, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(string(results), name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	picture, err := os.ReadFile(filepath.Join(string(results), name+".svg"))
	if err != nil {
		t.Fatal(err)
	}
	elements(t, picture)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{host, os.TempDir(), os.Args[0]} {
		if strings.Contains(string(text)+string(picture), secret) {
			t.Errorf("%q is in the results", secret)
		}
	}
	return string(text)
}

// elements counts a picture's elements of each class, which fails if it is not well-formed.
func elements(t *testing.T, picture []byte) map[string]int {
	t.Helper()
	seen := map[string]int{}
	for decoder := xml.NewDecoder(strings.NewReader(string(picture))); ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return seen
		}
		if err != nil {
			t.Fatalf("%v in:\n%s", err, picture)
		}
		element, starts := token.(xml.StartElement)
		if !starts {
			continue
		}
		for _, attribute := range element.Attr {
			for _, class := range strings.Fields(attribute.Value) {
				if attribute.Name.Local == "class" {
					seen[element.Name.Local+" "+class]++
				}
			}
		}
	}
}

func TestThePictureOfAComparisonHasABarForEachServerAndAMarkForEachTarget(t *testing.T) {
	rounds := measuredOnce()
	rounds.add("a<b>&c", &Result{Scenario: "spread", CPUSum: 90, CPU: []Usage{{"pid 1", 90}}})
	found := report{rounds.rows(), rounds.verdicts([]Binary{{}, {Name: "after"}})}
	picture, err := found.barsPicture([]string{"spread"}, "1 < 2 & 3")
	if err != nil {
		t.Fatal(err)
	}
	got := elements(t, picture)
	// A legend has a bar of each kind and a mark. Redis has a part of its server's bar, and the baseline is Redis alone.
	want := map[string]int{
		"rect noop": 2, "rect memory": 3, "rect service": 2, "rect redis": 3, "rect also": 1, "rect other": 1,
		"path mark": 4, "text missed": 1,
	}
	for class, count := range want {
		if got[class] != count {
			t.Errorf("%d of %q, want %d", got[class], class, count)
		}
	}
}

func TestTheCPUOfProcessesThatAreNotNamedIsNotDrawn(t *testing.T) {
	found := report{Rows: []Row{{Scenario: "hot", Server: "other", PerSecond: 5}}}
	picture, err := found.barsPicture([]string{"hot"}, "")
	if err != nil {
		t.Fatal(err)
	}
	if got := elements(t, picture)["rect other"]; got != 0 {
		t.Errorf("%d bars", got)
	}
}

func TestStepsOfAnAxisAreRoundAndFew(t *testing.T) {
	for most, want := range map[float64]float64{0.3: 0.1, 6: 1, 7: 2, 31: 10, 173: 50, 400: 100} {
		if got := niceStep(most); got < want*0.999 || got > want*1.001 {
			t.Errorf("step %v of %v, want %v", got, most, want)
		}
	}
}

// grownTwice is a cost that doubles along an axis of three points, of which the last is not measured.
func grownTwice() *growth {
	grown := &growth{axes: []axis{{name: "rules", points: []int{10, 1000, 1_500_000}}}, measured: newComparison()}
	for _, server := range []string{noopName, "memory"} {
		grown.measured.add(server, &Result{Scenario: "rules=10", CPUSum: 10})
		grown.measured.add(server, &Result{Scenario: "rules=1000", CPUSum: 20})
	}
	grown.measured.results[cell{"rules=10", "memory"}][0].Errors = 3
	return grown
}

func TestGrowthIsATableAnAxis(t *testing.T) {
	out := new(strings.Builder)
	if err := grownTwice().write(out); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(out.String()) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	want := []string{
		"CPU µs a decision, and its ratio to the no-op's", "",
		"rules no-op ratio memory ratio", "10 10.00 1.00 10.00 1.00", "1000 20.00 1.00 20.00 1.00", "most / least 2.00 2.00",
		"", "requests that failed: 3",
	}
	if !slices.Equal(lines, want) {
		t.Errorf("got:\n%s", out)
	}
}

func TestThePictureOfGrowthHasACurveForEachServer(t *testing.T) {
	picture, err := grownTwice().picture("")
	if err != nil {
		t.Fatal(err)
	}
	got := elements(t, picture)
	if got["path curve"] != 2 || got["path memory"] != 1 || got["circle memory"] != 2 {
		t.Errorf("%v", got)
	}
}

func TestNumbersOnAnAxisAreShort(t *testing.T) {
	for n, want := range map[int]string{1: "1", 512: "512", 1000: "1k", 1500: "1.5k", 100_000: "100k", 5_000_000: "5M"} {
		if got := count(n); got != want {
			t.Errorf("%d is %s, want %s", n, got, want)
		}
	}
}
