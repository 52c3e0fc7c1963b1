package simulate_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/envoy-rls/envoy-rls/internal/simulate"
	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
)

func compiled(t *testing.T, rules string) *descriptors.Ruleset {
	t.Helper()
	rs, problems := descriptors.Compile([]descriptors.File{{Name: "rules.yaml", Data: []byte("domain: d\n" + rules)}}, descriptors.Options{})
	if descriptors.HasErrors(problems) {
		t.Fatal(problems)
	}
	return rs
}

// list is traffic of descriptors such as "user=ann path=/", a second apart.
type list []string

func (l list) Each(yield func(*simulate.Request) bool) error {
	for i, text := range l {
		r := &simulate.Request{At: simulate.Begin + int64(i)*second}
		for _, d := range strings.Split(text, "; ") {
			var entries []descriptors.Entry
			for _, word := range strings.Fields(d) {
				key, value, _ := strings.Cut(word, "=")
				entries = append(entries, descriptors.Entry{Key: key, Value: value})
			}
			r.Descriptors = append(r.Descriptors, entries)
		}
		if !yield(r) {
			return nil
		}
	}
	return nil
}

func run(t *testing.T, l list, rules ...string) *simulate.Result {
	t.Helper()
	r := simulate.Run{Traffic: l, Top: 10}
	for _, text := range rules {
		r.Sets = append(r.Sets, simulate.NewSet(compiled(t, text), simulate.Options{Domain: "d"}))
	}
	result, err := r.Do()
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func TestARefusalIsOfEachLimitThatRefusesAndOfWhomItCountsApart(t *testing.T) {
	r := run(t, list{
		"user=ann; ip=10.1.2.3 path=/a; stranger=x", "user=ann; ip=10.1.9.9 path=/b", "user=bob; ip=10.1.3.3 path=/b", "free=1; user=ann",
	}, `
keys: {ip: {ip_mask: {v4: 16}}}
descriptors:
  - {key: user, rate_limits: [{name: few, unit: day, requests_per_unit: 1}, {name: tried, unit: hour, requests_per_unit: 1, shadow_mode: true}]}
  - {key: ip, descriptors: [{key: path, value: "/*", share_threshold: true, rate_limit: {unit: day, requests_per_unit: 1}}]}
  - {key: free, exempt: true}
`)
	set := r.Sets[0]
	var limits []string
	for _, l := range set.Limits {
		limits = append(limits, fmt.Sprint(l.Path, " ", l.Asked, " ", l.Refused, " ", l.Over))
	}
	if want := []string{"d.ip.path_/* 3 2 0", "d.user/few 3 1 0", "d.user/tried 3 0 1", "d.free 1 0 0"}; !slices.Equal(limits, want) {
		t.Errorf("%q, want %q", limits, want)
	}
	var who []string
	for _, w := range set.Who {
		who = append(who, fmt.Sprintf("%s%v%d", w.Limit, w.Values, w.Requests))
	}
	if want := []string{"d.ip.path_/*[{ip 10.1.0.0/16}]2", "d.user/few[{user ann}]1"}; !slices.Equal(who, want) {
		t.Errorf("%q, want %q", who, want)
	}
	if r.Requests != 4 || set.Refused != 2 || set.Failed != 0 || r.From != simulate.Begin || r.To != simulate.Begin+3*second {
		t.Errorf("%+v", r)
	}
}

func TestTwoSetsAreComparedRequestByRequest(t *testing.T) {
	few := "descriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: %d}}, {key: path, rate_limit: {unit: day, requests_per_unit: %d}}]"
	r := run(t, list{"user=ann", "user=ann", "path=/", "path=/", "path=/"}, fmt.Sprintf(few, 1, 3), fmt.Sprintf(few, 2, 1))
	if r.OnlyFirst != 1 || r.OnlySecond != 2 || r.Sets[0].Refused != 1 || r.Sets[1].Refused != 2 {
		t.Errorf("%+v", r)
	}
	first, then := fmt.Sprint(r.OnlyFirstWho), fmt.Sprint(r.OnlySecondWho)
	if first != "[{{d.user [{user ann}]} 1 0}]" || then != "[{{d.path [{path /}]} 2 0}]" {
		t.Errorf("%s and %s", first, then)
	}
}

func TestARequestWithoutAnAnswerIsCountedAndRefusesNobody(t *testing.T) {
	r := run(t, list{strings.Repeat("user=ann; ", 300) + "user=ann", "user=ann"},
		"descriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 1}}]")
	set := r.Sets[0]
	if set.Failed != 1 || set.Refused != 0 || !strings.Contains(set.Failure, "more than 256 hits") || r.Requests != 2 {
		t.Errorf("%+v", set)
	}
}

func TestWhatMemoryForgetsAndMaxValuesSharesIsTold(t *testing.T) {
	var users list
	for i := range 3000 {
		users = append(users, fmt.Sprint("user=", i))
	}
	rules := compiled(t, "descriptors: [{key: user, max_values: 2900, rate_limit: {unit: year, requests_per_unit: 5}}]")
	r := simulate.Run{Traffic: users, Sets: []*simulate.Set{simulate.NewSet(rules, simulate.Options{Domain: "d", MemoryLimit: 100_000})}}
	result, err := r.Do()
	if err != nil {
		t.Fatal(err)
	}
	if set := result.Sets[0]; set.Forgotten < 1500 || set.Overflown < 1 || set.Overflown > 110 {
		t.Errorf("%+v", set)
	}
}

type broken struct{ list }

func (b broken) Each(yield func(*simulate.Request) bool) error {
	return errors.Join(b.list.Each(yield), errors.New("broken"))
}

func TestTrafficThatBreaksOffIsAnError(t *testing.T) {
	r := simulate.Run{
		Traffic: broken{list{"user=ann"}},
		Sets:    []*simulate.Set{simulate.NewSet(compiled(t, "descriptors: [{key: user}]"), simulate.Options{Domain: "d"})},
	}
	if result, err := r.Do(); err == nil || err.Error() != "broken" {
		t.Errorf("%+v, %v", result, err)
	}
}
