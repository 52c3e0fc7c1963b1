package statsd

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Tags are values by name.
type Tags map[string]string

// ParseTags reads name:value,name:value. Empty text has none.
func ParseTags(text string) (Tags, error) {
	tags := Tags{}
	if text == "" {
		return tags, nil
	}
	for pair := range strings.SplitSeq(text, ",") {
		name, value, found := strings.Cut(pair, ":")
		_, twice := tags[name]
		switch {
		case !found || name == "" || strings.Contains(value, ":"):
			return nil, fmt.Errorf("%q is not a tag; want name:value,name:value", pair)
		case !utf8.ValidString(pair):
			return nil, fmt.Errorf("%q is not UTF-8", pair)
		case strings.ContainsFunc(pair, isUnsafe):
			return nil, fmt.Errorf("%q has a character that ends a tag for a statsd", pair)
		case twice:
			return nil, fmt.Errorf("%q is there twice; delete one", name)
		}
		tags[name] = value
	}
	return tags, nil
}

func isUnsafe(c rune) bool { return c == '|' || c == ',' || unicode.IsControl(c) }

// tagText is text with what would end a tag taken out.
func tagText(text string) string {
	return strings.Map(func(c rune) rune {
		if isUnsafe(c) {
			return '_'
		}
		return c
	}, text)
}

func (t Tags) sorted() []string { return slices.Sorted(maps.Keys(t)) }

// list are the tags as DogStatsD has them.
func (t Tags) list() (list []string) {
	for _, name := range t.sorted() {
		list = append(list, name+":"+t[name])
	}
	return list
}

// suffix is what the replaced service adds to the names of a plain statsd.
func (t Tags) suffix() string {
	var b strings.Builder
	for _, name := range t.sorted() {
		b.WriteString(".__" + name + "=" + t[name])
	}
	return b.String()
}
