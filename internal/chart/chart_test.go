package chart_test

import (
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/envoy-rls/envoy-rls/internal/chart"
)

func draw(t *testing.T, r chart.Rate) string {
	t.Helper()
	r.From = time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)
	picture, err := r.SVG()
	if err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(strings.NewReader(string(picture))); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return string(picture)
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, picture)
		}
	}
}

func TestATextFromOutsideCanDoNoHarm(t *testing.T) {
	picture := draw(t, chart.Rate{
		Title: `</title><script>alert("x")</script>` + "\x00", Subtitle: "<a href='x'>", Limit: 1,
		Step: time.Second, Asked: []int64{1}, Admitted: []int64{1},
	})
	if strings.Contains(picture, "<script") || strings.Contains(picture, "<a ") {
		t.Error(picture)
	}
}

func TestWhatIsAdmittedAndTheLimitStandWhereTheyShould(t *testing.T) {
	picture := draw(t, chart.Rate{Limit: 100, Step: time.Minute, Asked: []int64{0, 150, 200}, Admitted: []int64{0, 100, 150}})
	number := func(pattern string) float64 {
		m := regexp.MustCompile(pattern).FindStringSubmatch(picture)
		if m == nil {
			t.Fatalf("no %s in\n%s", pattern, picture)
		}
		v, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	limit, admitted := number(`y1="([\d.]+)"[^>]* class="bound" stroke-width="2"/>\n</svg>`), number(`L395 ([\d.]+) L710 [^"]*" class="much"`)
	if limit != admitted || limit < 100 || limit > 320 {
		t.Errorf("the limit of 100 is at %g, and 100 hits are at %g", limit, admitted)
	}
	if asked := number(`L395 ([\d.]+) L710 [^"]*" class="little"`); asked >= admitted {
		t.Errorf("150 hits are at %g, below 100 at %g", asked, admitted)
	}
}

func TestAFloodDoesNotHideTheLimit(t *testing.T) {
	picture := draw(t, chart.Rate{Limit: 10, Step: time.Second, Asked: []int64{100_000, 5}, Admitted: []int64{10, 5}})
	if !strings.Contains(picture, "asked for: up to 100000, beyond the picture") || !strings.Contains(picture, ">15<") && !strings.Contains(picture, ">10<") {
		t.Error(picture)
	}
}

// TestEverySpanHasAFewTimes has pictures of a second to ten years.
func TestEverySpanHasAFewTimes(t *testing.T) {
	for step := time.Millisecond; step < 10*365*24*time.Hour/600; step = step * 3 / 2 {
		values := make([]int64, 601)
		marks := strings.Count(draw(t, chart.Rate{Limit: 1, Step: step, Asked: values, Admitted: values}), "stroke-dasharray")
		if least := min(4, int(600*step/time.Second)); marks < least || marks > 17 {
			t.Errorf("a picture of %s has %d times", 600*step, marks)
		}
	}
}
