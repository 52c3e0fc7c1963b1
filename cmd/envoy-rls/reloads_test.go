package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
)

func TestReloadsAreBounded(t *testing.T) {
	var l reloads
	long := strings.Repeat("é", maxReloadText)
	for i := range 2 * maxReloads {
		problems := slices.Repeat([]string{long}, 2*maxLogged)
		problems[0] = strings.Repeat("x", i)
		l.add(newReload(reloadRefused, fromFiles, nil).tell(nil, problems))
	}
	list := l.newest()
	if len(list) != maxReloads {
		t.Fatalf("%d loads", len(list))
	}
	r := list[0]
	if len(r.Problems) != maxLogged || r.MoreProblems != maxLogged || len(r.Problems[0]) != 2*maxReloads-1 {
		t.Errorf("the newest has %d problems and %d more", len(r.Problems), r.MoreProblems)
	}
	if text := r.Problems[1]; len(text) > maxReloadText+len("…") || strings.ToValidUTF8(text, "") != text {
		t.Errorf("a text of %d bytes", len(text))
	}
}

func TestLoadsInARowThatComeToTheSameAreOne(t *testing.T) {
	var l reloads
	rules, problems := descriptors.Compile([]descriptors.File{{Name: "a.yaml", Data: []byte("domain: a\n")}}, descriptors.Options{})
	if descriptors.HasErrors(problems) {
		t.Fatal(problems)
	}
	for _, load := range []struct {
		came              outcome
		changes, problems []string
	}{
		{reloadInForce, nil, nil},
		{reloadRefused, nil, []string{"bad"}}, {reloadRefused, nil, []string{"bad"}}, {reloadRefused, nil, []string{"bad"}},
		{reloadRefused, nil, []string{"worse"}},
		{reloadInForce, []string{"+ a.b"}, nil}, {reloadInForce, nil, nil}, {reloadInForce, []string{"- a.b"}, nil},
	} {
		l.add(newReload(load.came, fromControlPlane, rules).tell(load.changes, load.problems))
	}
	var times []int
	for _, r := range l.newest() {
		times = append(times, r.Times)
	}
	if want := []int{1, 2, 1, 3, 1}; !slices.Equal(times, want) {
		t.Errorf("times are %d, want %d", times, want)
	}
}
