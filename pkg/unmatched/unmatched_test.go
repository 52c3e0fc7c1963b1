package unmatched_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/unmatched"
)

var start = time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)

// entries reads "a=1 b=2".
func entries(text string) []descriptors.Entry {
	var list []descriptors.Entry
	for _, word := range strings.Fields(text) {
		key, value, _ := strings.Cut(word, "=")
		list = append(list, descriptors.Entry{Key: key, Value: value})
	}
	return list
}

func shapes(list []unmatched.Shape) string {
	var words []string
	for _, s := range list {
		words = append(words, fmt.Sprintf("%d %s %s", s.Count, s.Domain, strings.Join(s.Keys, ",")))
	}
	slices.Sort(words)
	return strings.Join(words, "; ")
}

func TestDescriptorsAreCountedByShape(t *testing.T) {
	table := unmatched.New(0)
	for i, text := range []string{"user=ann", "user=bob", "tenant=t path=/a", "path=/a tenant=t", "", "user=ann"} {
		table.Note("shop", entries(text), start.Add(time.Duration(i)*time.Second))
	}
	table.Note("shpo", entries("user=ann"), start)
	list := table.Shapes()
	if got, want := shapes(list), "1 shop ; 1 shop path,tenant; 1 shop tenant,path; 1 shpo user; 3 shop user"; got != want {
		t.Errorf("the shapes are %s, want %s", got, want)
	}
	if s := list[0]; s.Count != 3 || !s.First.Equal(start) || !s.Last.Equal(start.Add(5*time.Second)) {
		t.Errorf("the most frequent is %+v", s)
	}
}

func TestTheLeastRecentShapeIsForgotten(t *testing.T) {
	table := unmatched.New(3)
	now := start
	note := func(key string) {
		now = now.Add(time.Second)
		table.Note("d", entries(key+"=x"), now)
	}
	for _, key := range []string{"a", "b", "c", "a", "d", "e"} {
		note(key)
	}
	if got := shapes(table.Shapes()); got != "1 d d; 1 d e; 2 d a" || table.Forgotten() != 2 {
		t.Errorf("the shapes are %s, %d are forgotten", got, table.Forgotten())
	}
}

func TestAFloodOfShapesIsBounded(t *testing.T) {
	table := unmatched.New(10)
	long := strings.Repeat("é", 600)
	for i := range 1000 { // in one second
		list := entries(fmt.Sprintf("%d%s=%s", i, long, long))
		for range 5 {
			list = append(list, list...)
		}
		table.Note(long, list, start.Add(time.Duration(i)*time.Millisecond))
	}
	if n := len(table.Shapes()); n != 10 || table.Forgotten() > 101 || table.Forgotten()+table.Uncounted() != 990 {
		t.Errorf("%d shapes, %d forgotten, %d uncounted", n, table.Forgotten(), table.Uncounted())
	}
	for _, s := range table.Shapes() {
		if len(s.Domain) > 1100 || len(s.Keys) != 16 || s.MoreKeys != 16 || len(s.Keys[0]) > 70 {
			t.Errorf("%d bytes of domain, %d keys, %d more", len(s.Domain), len(s.Keys), s.MoreKeys)
		}
	}
}

func TestAShapeIsDueOnceAMinuteAndTwentyInAll(t *testing.T) {
	table := unmatched.New(0)
	now := start
	for range 5 {
		table.Note("d", entries("user=ann"), now)
	}
	if got := shapes(table.Due(now)); got != "5 d user" {
		t.Errorf("at first, %s is due", got)
	}
	table.Note("d", entries("user=ann"), now)
	if got := shapes(table.Due(now.Add(59 * time.Second))); got != "" {
		t.Errorf("within a minute, %s is due", got)
	}
	now = now.Add(time.Minute)
	if got := shapes(table.Due(now)); got != "1 d user" {
		t.Errorf("a minute later, %s is due", got)
	}
	now = now.Add(time.Minute)
	if got := shapes(table.Due(now)); got != "" {
		t.Errorf("what isn't seen any more is due: %s", got)
	}
	for i := range 100 {
		table.Note("d", entries(fmt.Sprint("key", i, "=x")), now)
	}
	first, second := table.Due(now), table.Due(now.Add(time.Second))
	third := table.Due(now.Add(time.Minute))
	if len(first) != 20 || len(second) != 0 || len(third) != 20 {
		t.Errorf("of 100 shapes, %d are due, a second later %d, a minute later %d", len(first), len(second), len(third))
	}
}

func TestTheNearestRuleIsToldWithoutValues(t *testing.T) {
	compiled := func(rules string) *descriptors.Ruleset {
		rs, problems := descriptors.Compile([]descriptors.File{{Name: "r.yaml", Data: []byte(rules)}}, descriptors.Options{})
		if descriptors.HasErrors(problems) {
			t.Fatal(problems)
		}
		return rs
	}
	table := unmatched.New(0)
	table.Note("shop", entries("user=ALICE"), start)
	s := table.Shapes()[0]
	before := compiled("domain: shop\ndescriptors: [{key: user, value: alice, rate_limit: {unit: hour, requests_per_unit: 1}}]")
	if got := s.Why(before); !strings.Contains(got, "it differs in case from `alice`") || strings.Contains(got, "ALICE") {
		t.Errorf("why: %s", got)
	}
	after := compiled("domain: shop\ndescriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 1}}]")
	if got := s.Why(after); got != "a rule matches it since the rules changed" {
		t.Errorf("after a change: %s", got)
	}
}

func TestManyGoroutinesLoseNoCount(t *testing.T) {
	table := unmatched.New(0)
	var workers sync.WaitGroup
	for w := range 8 {
		workers.Go(func() {
			for i := range 1000 {
				table.Note("d", entries(fmt.Sprint("key", (i+w)%50, "=x")), start)
			}
		})
	}
	workers.Wait()
	total := int64(0)
	for _, s := range table.Shapes() {
		total += s.Count
	}
	if total != 8000 || len(table.Shapes()) != 50 {
		t.Errorf("%d of 8000 are counted, in %d shapes", total, len(table.Shapes()))
	}
}

func TestNotingAKnownShapeAllocatesNothing(t *testing.T) {
	table, list := unmatched.New(0), entries("tenant=t path=/a")
	if n := testing.AllocsPerRun(100, func() { table.Note("shop", list, start) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkNote(b *testing.B) {
	table, list := unmatched.New(0), entries("tenant=t path=/a")
	for b.Loop() {
		table.Note("shop", list, start)
	}
}
