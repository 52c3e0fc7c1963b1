package descriptors_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
)

// manyRules is a file of n rules: tenants of a hundred users each.
func manyRules(n int) descriptors.File {
	var b strings.Builder
	b.WriteString("domain: many\ndescriptors:\n")
	for i := range n {
		if i%100 == 0 {
			fmt.Fprintf(&b, "  - key: tenant\n    value: tenant-%d\n    descriptors:\n", i/100)
		}
		fmt.Fprintf(&b, "      - {key: user, value: user-%d, rate_limit: {unit: minute, requests_per_unit: %d}}\n", i, i)
	}
	return descriptors.File{Name: "many.yaml", Data: []byte(b.String())}
}

func TestAHundredThousandRulesCompile(t *testing.T) {
	f := manyRules(100_000)
	rules, problems := descriptors.Compile([]descriptors.File{f}, descriptors.Options{})
	if len(problems) > 0 || rules.Limits != 100_000 {
		t.Fatalf("%d limits, %v", rules.Limits, problems)
	}
	r := rules.Domain("many").Match(entries("tenant=tenant-999 user=user-99999"))
	if r == nil || r.Limits[0].Requests != 99_999 {
		t.Errorf("the last rule is %+v", r)
	}
}

func BenchmarkCompile(b *testing.B) {
	for _, n := range []int{1000, 100_000} {
		f := manyRules(n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.SetBytes(int64(len(f.Data)))
			for b.Loop() {
				descriptors.Compile([]descriptors.File{f}, descriptors.Options{})
			}
		})
	}
}

func BenchmarkMatch(b *testing.B) {
	domain := compile(b, descriptors.Options{}, string(manyRules(100_000).Data)).Domain("many")
	list := entries("tenant=tenant-500 user=user-50000")
	b.ReportAllocs()
	for b.Loop() {
		domain.Match(list)
	}
}
