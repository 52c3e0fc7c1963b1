package statsd

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Mogrifier rewrites names that match a pattern, and moves parts of them to tags.
type Mogrifier struct {
	pattern *regexp.Regexp
	name    template
	tags    []tagTemplate
}

type tagTemplate struct {
	name  string
	value template
}

// template is text with groups of a pattern in it.
type template []part

// part is a text, or if that is empty a group.
type part struct {
	text  string
	group int
}

// NewMogrifier makes a Mogrifier of a regular expression, the name that a match gets, and its tags, as ParseTags reads
// them. In the name and in tags' values $0 is all that matched, and $1, $2 and so on are the pattern's groups.
func NewMogrifier(pattern, name, tags string) (*Mogrifier, error) {
	if pattern == "" || name == "" {
		return nil, errors.New("a mogrifier needs a pattern and a name")
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, fmt.Errorf("the pattern %q is no regular expression: %w", pattern, err)
	}
	m := &Mogrifier{pattern: re}
	if m.name, err = parseTemplate(name, re.NumSubexp()); err != nil {
		return nil, fmt.Errorf("the name %q: %w", name, err)
	}
	parsed, err := ParseTags(tags)
	if err != nil {
		return nil, fmt.Errorf("the tags: %w", err)
	}
	for _, tag := range parsed.sorted() {
		value, err := parseTemplate(parsed[tag], re.NumSubexp())
		if err != nil {
			return nil, fmt.Errorf("the tag %q: %w", tag, err)
		}
		m.tags = append(m.tags, tagTemplate{tag, value})
	}
	return m, nil
}

// mogrify rewrites a name. ok is false if it doesn't match.
func (m *Mogrifier) mogrify(name string) (to string, tags []string, ok bool) {
	groups := m.pattern.FindStringSubmatch(name)
	if groups == nil {
		return "", nil, false
	}
	for _, t := range m.tags {
		tags = append(tags, t.name+":"+tagText(t.value.fill(groups)))
	}
	return m.name.fill(groups), tags, true
}

func (t template) fill(groups []string) string {
	var b strings.Builder
	for _, p := range t {
		if p.text == "" {
			b.WriteString(groups[p.group])
		}
		b.WriteString(p.text)
	}
	return b.String()
}

// parseTemplate reads $ and the most digits that number a group as that group. Any other $ is itself.
func parseTemplate(text string, groups int) (t template, err error) {
	for text != "" {
		next := strings.IndexByte(text[1:], '$') + 1
		if next == 0 {
			next = len(text)
		}
		if text[0] == '$' && len(text) > 1 && text[1] >= '0' && text[1] <= '9' {
			group, digits := longestNumber(text[1:], groups)
			if digits == 0 {
				return nil, fmt.Errorf("the pattern has no group for %q, only %d", text[:2], groups)
			}
			t = append(t, part{group: group})
			text = text[1+digits:]
			continue
		}
		t = append(t, part{text: text[:next]})
		text = text[next:]
	}
	return t, nil
}

// longestNumber reads digits at the start of text as far as they are a number up to most.
func longestNumber(text string, most int) (n, digits int) {
	for i := 1; i <= len(text); i++ {
		v, err := strconv.ParseUint(text[:i], 10, 16)
		if err != nil || int(v) > most {
			break
		}
		n, digits = int(v), i
	}
	return n, digits
}
