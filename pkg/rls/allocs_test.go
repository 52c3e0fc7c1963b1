//go:build !race

package rls

import (
	"context"
	"testing"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
)

// TestADecisionInMemoryAllocatesNothing is about reading, matching, deciding and answering. The race detector
// makes pools forget, so it isn't built with it.
func TestADecisionInMemoryAllocatesNothing(t *testing.T) {
	for _, c := range speedCases {
		for _, o := range []descriptors.Options{{}, {ReplacedNames: true}, {HashKey: descriptors.NewHashKey([]byte("secret"))}} {
			allocatesNothing(t, c.name, speedService(t, o), speedRequests(t, c.descriptors))
			overridden := speedService(t, o)
			overridden.SetRules(withOverrides(t, overridden.Rules()))
			allocatesNothing(t, c.name+", with overrides", overridden, speedRequests(t, c.descriptors))
		}
	}
}

// withOverrides has one of every rule, and one more that fits nothing.
func withOverrides(t *testing.T, rules *descriptors.Ruleset) *descriptors.Ruleset {
	t.Helper()
	var list []descriptors.Override
	for _, d := range rules.Sorted() {
		for _, r := range d.Rules() {
			o := descriptors.Override{Domain: d.Name, Rule: r.Path, Kind: descriptors.OverrideShadow}
			list = append(list, o)
			o.Match = []descriptors.Entry{{Key: "user", Value: "nobody"}}
			list = append(list, o)
		}
	}
	with, _ := rules.WithOverrides(list)
	return with
}

func allocatesNothing(t *testing.T, name string, s *Service, requests [][]byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	next := 0
	decide := func() {
		call := s.newCall()
		call.request.wire = append(call.request.wire, requests[next%len(requests)]...)
		next++
		if err := call.request.unmarshal(); err != nil {
			t.Fatal(err)
		}
		if err := s.answer(ctx, call); err != nil {
			t.Fatal(err)
		}
		call.release()
	}
	for range requests {
		decide()
	}
	if n := testing.AllocsPerRun(10*len(requests), decide); n != 0 {
		t.Errorf("%s: %v allocations", name, n)
	}
}
