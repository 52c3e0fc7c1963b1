package descriptors

import (
	"cmp"
	"strings"
)

// wildcard is a value with stars in it, each of which stands for zero or more bytes of any kind. Without a star
// it matches itself.
type wildcard struct {
	text   string   // as written
	prefix string   // before the first star
	middle []string // between stars, none of them empty
	suffix string   // after the last star
	length int      // of prefix, middle and suffix together
}

func newWildcard(text string) wildcard {
	parts := strings.Split(text, "*")
	w := wildcard{
		text:   text,
		prefix: parts[0],
		suffix: parts[len(parts)-1],
		length: len(text) - strings.Count(text, "*"),
	}
	if len(parts) == 1 {
		w.suffix = ""
		return w
	}
	for _, p := range parts[1 : len(parts)-1] {
		if p != "" {
			w.middle = append(w.middle, p)
		}
	}
	return w
}

// matches takes each middle part at its first place, which finds a match if there is one.
func (w *wildcard) matches(value string) bool {
	if w.length == len(w.text) {
		return value == w.text
	}
	if len(value) < w.length || !strings.HasPrefix(value, w.prefix) || !strings.HasSuffix(value, w.suffix) {
		return false
	}
	rest := value[len(w.prefix) : len(value)-len(w.suffix)]
	for _, part := range w.middle {
		_, after, found := strings.Cut(rest, part)
		if !found {
			return false
		}
		rest = after
	}
	return true
}

// compareWildcards orders wildcards by how specific they are: the longest literal prefix first, then the most
// literal bytes, then byte order, so that the choice depends on no order in a file.
func compareWildcards(a, b wildcard) int {
	return cmp.Or(
		cmp.Compare(len(b.prefix), len(a.prefix)),
		cmp.Compare(b.length, a.length),
		cmp.Compare(a.text, b.text),
	)
}
