package statsd_test

import (
	"strings"
	"testing"

	"github.com/envoy-rls/envoy-rls/pkg/statsd"
)

func TestBadMogrifiersAreNamed(t *testing.T) {
	for _, c := range []struct{ pattern, name, tags, want string }{
		{"", "n", "", "needs a pattern and a name"},
		{"p", "", "", "needs a pattern and a name"},
		{"(", "n", "", "is no regular expression"},
		{"p", "n.$1", "", `no group for "$1", only 0`},
		{"(p)", "n", "t:$2", `the tag "t": the pattern has no group for "$2", only 1`},
		{"p", "n", "t", `"t" is not a tag`},
		{"p", "n", "t:a:b", `"t:a:b" is not a tag`},
		{"p", "n", "t:1,t:2", `"t" is there twice`},
		{"p", "n", "t:a|b", "ends a tag"},
		{"p", "n", "t:\xff", "is not UTF-8"},
	} {
		_, err := statsd.NewMogrifier(c.pattern, c.name, c.tags)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q, %q, %q: got %v, want %s", c.pattern, c.name, c.tags, err, c.want)
		}
	}
}

func FuzzTags(f *testing.F) {
	for _, text := range []string{"", "a:b", "a:b,c:d", "a", ":", "a:b:c", "a:\n", "a:b,a:c"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		tags, err := statsd.ParseTags(text)
		if err != nil {
			return
		}
		written := 0
		for name, value := range tags {
			written += len(name) + len(value) + len(":,")
			if name == "" || strings.ContainsAny(name+value, "|\n,:") {
				t.Errorf("%q becomes %q:%q", text, name, value)
			}
		}
		if text != "" && written != len(text)+1 {
			t.Errorf("%q becomes %q", text, tags)
		}
	})
}
