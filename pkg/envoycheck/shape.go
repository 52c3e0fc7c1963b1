package envoycheck

import (
	"slices"
	"strings"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
)

// maxOptional bounds the entries of one descriptor that may be left out; Envoy's users have one or two.
const maxOptional = 8

// shapes are all descriptors that parts can make, the longest first: entries that may be left out are there, and
// are not.
func shapes(parts []part) [][]descriptors.Pattern {
	list := [][]descriptors.Pattern{nil}
	optional := 0
	for _, p := range parts {
		entry := descriptors.Pattern{Key: p.key, Values: p.values}
		var next [][]descriptors.Pattern
		for _, shape := range list {
			next = append(next, append(slices.Clip(shape), entry))
		}
		if p.absent == leftOut && optional < maxOptional {
			optional++
			next = append(next, list...)
		}
		list = next
	}
	slices.SortStableFunc(list, func(a, b []descriptors.Pattern) int { return len(b) - len(a) })
	return list
}

// shapeText is a shape in words: (user=…, path=/a).
func shapeText(shape []descriptors.Pattern) string {
	texts := make([]string, len(shape))
	for i, e := range shape {
		value := "…"
		if e.Values != nil {
			value = strings.Join(e.Values, "|")
		}
		texts[i] = e.Key + "=" + value
	}
	return "(" + strings.Join(texts, ", ") + ")"
}

// meet tells whether one descriptor can have both shapes. What is known of both values decides: an unknown value
// of a request is hardly one that another action names.
func meet(a, b []descriptors.Pattern) bool {
	return slices.EqualFunc(a, b, func(x, y descriptors.Pattern) bool {
		if x.Values == nil || y.Values == nil {
			return x.Key == y.Key && x.Values == nil && y.Values == nil
		}
		return x.Key == y.Key && slices.ContainsFunc(x.Values, func(v string) bool { return slices.Contains(y.Values, v) })
	})
}
