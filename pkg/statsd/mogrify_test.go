package statsd

import (
	"slices"
	"strings"
	"testing"
)

func TestMogrifiersRewriteWhatTheyMatch(t *testing.T) {
	for _, c := range []struct {
		pattern, name, tags string
		to                  string
		got                 []string
	}{
		{`^a\.(.*)\.(.*)$`, "a.$2", "x:$1,y:$0", "a.c", []string{"x:b", "y:a.b.c"}},
		{`(b)`, "$12$", "", "b2$", nil},
		{`b`, "$$0$x", "", "$b$x", nil},
		{`z`, "n", "", "", nil},
	} {
		m, err := NewMogrifier(c.pattern, c.name, c.tags)
		if err != nil {
			t.Fatal(err)
		}
		to, tags, ok := m.mogrify("a.b.c")
		if to != c.to || !slices.Equal(tags, c.got) || ok != (c.to != "") {
			t.Errorf("%s: got %q, %q, %t", c.pattern, to, tags, ok)
		}
	}
}

// FuzzMogrifier holds that what a mogrifier was made of can be used, and that its tags stay apart.
func FuzzMogrifier(f *testing.F) {
	f.Add(`^a\.(.*)\.(.*)$`, "a.$2", "x:$1,y:$0", "a.b.c")
	f.Add(`(b)`, "$12$", "", "a.b.c")
	f.Add(`(?P<n>.)`, "$", "t:$0", "x,y|z\n")
	f.Fuzz(func(t *testing.T, pattern, name, tags, stat string) {
		m, err := NewMogrifier(pattern, name, tags)
		if err != nil {
			return
		}
		_, got, _ := m.mogrify(stat)
		for _, tag := range got {
			if strings.ContainsAny(tag, ",|\n") {
				t.Errorf("a tag is %q", tag)
			}
		}
	})
}
