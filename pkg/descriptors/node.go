package descriptors

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"gopkg.in/yaml.v3"
)

// maxDepth bounds the nesting of descriptors.
const maxDepth = 64

// maxNodes bounds what a file of a size may come to once its aliases are expanded.
func maxNodes(size int) int { return 1<<20 + 2*size }

// reader walks one file's YAML nodes and collects what is wrong with them. It reads nodes rather than decode
// into structs, because only nodes know their position and the text that was written: decoding turns 10.7
// into 10 and a quoted "yes" into true without a word.
type reader struct {
	file      string
	size      int
	replaced  bool // report what envoyproxy/ratelimit would refuse, or take otherwise
	asSent    bool // leave values unprepared
	generated bool // no person wrote it
	visited   int
	gaveUp    bool // what is wrong with the rest is not known
	problems  []Problem

	hashKey *HashKey // that of the options

	base Defaults                // of the file
	keys map[string]*preparation // those of the file, and of its domain's defaults
}

func (r *reader) errorf(n *yaml.Node, path, format string, args ...any) {
	r.report(Error, n, path, fmt.Sprintf(format, args...))
}

func (r *reader) report(s Severity, n *yaml.Node, path, text string) {
	if r.gaveUp {
		return
	}
	r.problems = append(r.problems, Problem{
		Severity: s, File: r.file, Line: n.Line, Column: n.Column, Path: path, Text: text,
	})
}

// field is a key of a mapping and what it stands for.
type field struct {
	key, value *yaml.Node
}

// resolve follows aliases, and gives up once they have expanded too far.
func (r *reader) resolve(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	most := maxNodes(r.size)
	if r.visited++; r.visited == most {
		r.errorf(n, "", "the aliases of this file expand to more than %d nodes; write less of it by reference", most)
		r.gaveUp = true
	}
	if r.visited >= most {
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Line: n.Line, Column: n.Column}
	}
	return n
}

// fields returns the fields of mapping n with its merge keys (<<) resolved, and reports keys written twice
// and keys that are not in the block's list.
func (r *reader) fields(n *yaml.Node, path string, b block) []field {
	if n.Kind != yaml.MappingNode {
		r.errorf(n, path, "want a mapping with %s, got %s", strings.Join(b.keys(), ", "), describe(n))
		return nil
	}
	fields := r.merged(n, path, 0)
	r.checkFields(fields, path, b)
	return fields
}

// checkFields reports keys written twice, and keys that are not in the block's list.
func (r *reader) checkFields(fields []field, path string, b block) {
	for i, f := range fields {
		if first := slices.IndexFunc(fields[:i], func(g field) bool { return g.key.Value == f.key.Value }); first >= 0 {
			r.errorf(f.key, join(path, f.key.Value), "written twice, also at %d:%d; delete one",
				fields[first].key.Line, fields[first].key.Column)
		}
		if mend := newKeys[b][f.key.Value]; r.replaced && mend != "" {
			r.errorf(f.key, join(path, f.key.Value), "the replaced service doesn't know it, and would refuse all rules for it; %s", mend)
		}
		if !slices.Contains(b.keys(), f.key.Value) {
			r.errorf(f.key, join(path, f.key.Value), "%s", b.misplaced(f.key.Value))
		}
	}
}

// merged returns the fields of mapping n, its own first, then those of its merge keys that it doesn't write
// itself.
func (r *reader) merged(n *yaml.Node, path string, depth int) []field {
	var own, inherited []field
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], r.resolve(n.Content[i+1])
		if key.Tag != "!!merge" {
			own = append(own, field{r.resolve(key), value})
			continue
		}
		sources := []*yaml.Node{value}
		if value.Kind == yaml.SequenceNode {
			sources = value.Content
		}
		for _, s := range sources {
			if s = r.resolve(s); s.Kind != yaml.MappingNode || depth > maxDepth {
				r.errorf(s, path, "<< merges mappings only, got %s", describe(s))
				continue
			}
			inherited = append(inherited, r.merged(s, path, depth+1)...)
		}
	}
	for _, f := range inherited {
		if !slices.ContainsFunc(own, func(g field) bool { return g.key.Value == f.key.Value }) {
			own = append(own, f)
		}
	}
	return own
}

// items returns the items of list n; null is an empty list.
func (r *reader) items(n *yaml.Node, path string) []*yaml.Node {
	if isNull(n) {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		r.errorf(n, path, "want a list, got %s; put a dash before each item", describe(n))
		return nil
	}
	items := make([]*yaml.Node, len(n.Content))
	for i, c := range n.Content {
		items[i] = r.resolve(c)
	}
	return items
}

// text is a scalar as it was written; null is "".
func (r *reader) text(n *yaml.Node, path string) string {
	switch {
	case isNull(n):
		return ""
	case n.Kind != yaml.ScalarNode:
		r.errorf(n, path, "want text, got %s", describe(n))
		return ""
	case r.replaced && unreadable(n):
		r.errorf(n, path, "the replaced service refuses such a number as text; put it in quotes")
	case strings.ContainsFunc(n.Value, unicode.IsControl):
		r.errorf(n, path, "%q holds a control character, such as a line's end; a text ends in one after | or >", abbreviate(n.Value))
	}
	return n.Value
}

// flag is a boolean: true or false, not in quotes.
func (r *reader) flag(n *yaml.Node, path string) bool {
	if n.Kind != yaml.ScalarNode || n.Tag != "!!bool" {
		r.errorf(n, path, "want true or false, got %s", describe(n))
		return false
	}
	return strings.EqualFold(n.Value, "true")
}

// number is a whole number of 32 bits in decimal digits, not in quotes.
func (r *reader) number(n *yaml.Node, path string) uint32 {
	v, err := strconv.ParseUint(n.Value, 10, 32)
	if n.Kind != yaml.ScalarNode || n.Tag != "!!int" || err != nil {
		r.errorf(n, path, "want a whole number from 0 to 4294967295 in decimal digits, got %s", describe(n))
		return 0
	}
	if n.Value != "0" && n.Value[0] == '0' {
		r.errorf(n, path, "%s could be read as octal; write it without the leading zero", n.Value)
	}
	return uint32(v)
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// describe says what n is, for the end of an error.
func describe(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case isNull(n):
		return "nothing"
	case n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0:
		return fmt.Sprintf("the quoted text %q", abbreviate(n.Value))
	}
	return abbreviate(n.Value)
}

func abbreviate(s string) string {
	if len(s) > 60 {
		return s[:60] + "…"
	}
	return s
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
