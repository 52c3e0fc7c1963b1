package envoycheck

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// maxDepth bounds how deep a file may be nested.
const maxDepth = 200

// maxNodes bounds what a file of a size may come to once its aliases are expanded.
func maxNodes(size int) int { return 1<<18 + 2*size }

// tree is a value of a file and where it stands. All methods take nil for a value that isn't there, so that a
// way into a file needs no checks. It is never written once it is built.
type tree struct {
	file         string
	line, column int
	tag          string // of YAML: !!str, !!bool, …
	quoted       bool
	text         string // of a scalar
	keys         []*tree
	values       []*tree // of a mapping beside its keys, or of a list
}

// parse reads the documents of a YAML or JSON file.
func parse(file string, data []byte) ([]*tree, error) {
	if json := bytes.TrimLeft(data, " \t\r\n"); len(json) > 0 && json[0] == '{' {
		data = bytes.ReplaceAll(data, []byte("\t"), []byte(" ")) // YAML doesn't indent by tabs, JSON does
	}
	g := grower{file: file, left: maxNodes(len(data))}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var list []*tree
	for {
		var doc yaml.Node
		switch err := decoder.Decode(&doc); {
		case errors.Is(err, io.EOF):
			return list, nil
		case err != nil:
			return nil, fmt.Errorf("%s: not valid YAML or JSON: %s", file, strings.TrimPrefix(err.Error(), "yaml: "))
		}
		t := g.grow(&doc, 0)
		if g.left <= 0 {
			return nil, fmt.Errorf("%s: it is nested more than %d deep, or its aliases expand too far; write less of it by reference", file, maxDepth)
		}
		list = append(list, t)
	}
}

// grower turns YAML nodes into a tree, with aliases and merge keys resolved.
type grower struct {
	file string
	left int // nodes that may still come; 0 is too many
}

func (g *grower) grow(n *yaml.Node, depth int) *tree {
	if g.left--; depth > maxDepth {
		g.left = 0
	}
	if g.left <= 0 {
		return nil
	}
	switch n.Kind {
	case yaml.AliasNode:
		return g.grow(n.Alias, depth+1)
	case yaml.DocumentNode:
		return g.grow(n.Content[0], depth+1)
	}
	t := &tree{
		file: g.file, line: n.Line, column: n.Column, tag: n.ShortTag(), text: n.Value,
		quoted: n.Kind == yaml.ScalarNode && n.Style&^yaml.TaggedStyle != 0,
	}
	var merged []*tree
	for i, c := range n.Content {
		switch {
		case n.Kind == yaml.SequenceNode:
			t.values = append(t.values, g.grow(c, depth+1))
		case i%2 == 1 && n.Content[i-1].Tag == "!!merge":
			from := g.grow(c, depth+1)
			merged = append(append(merged, from), from.items()...)
		case i%2 == 1:
			t.keys = append(t.keys, g.grow(n.Content[i-1], depth+1))
			t.values = append(t.values, g.grow(c, depth+1))
		}
	}
	for _, m := range merged { // behind its own fields, of which the first is found
		if m.isMapping() {
			t.keys, t.values = append(t.keys, m.keys...), append(t.values, m.values...)
		}
	}
	return t
}

func (t *tree) isMapping() bool { return t != nil && t.tag == "!!map" }
func (t *tree) isList() bool    { return t != nil && t.tag == "!!seq" }
func (t *tree) isScalar() bool  { return t != nil && !t.isMapping() && !t.isList() && t.tag != "!!null" }

// get follows names of fields in snake_case, of which a file may also have the camelCase.
func (t *tree) get(names ...string) *tree {
	for _, name := range names {
		_, t = t.field(name)
	}
	return t
}

// field is a field's key and value. One that is null isn't there, as to Envoy.
func (t *tree) field(name string) (key, value *tree) {
	if !t.isMapping() {
		return nil, nil
	}
	other := camel(name)
	for i, k := range t.keys {
		if k != nil && (k.text == name || k.text == other) && t.values[i] != nil && t.values[i].tag != "!!null" {
			return k, t.values[i]
		}
	}
	return nil, nil
}

// has tells whether a field is there, though it may be empty.
func (t *tree) has(name string) bool {
	key, _ := t.field(name)
	return key != nil
}

// at is the key of a field, else t: where to point to when the field is wrong.
func (t *tree) at(name string) *tree {
	if key, _ := t.field(name); key != nil {
		return key
	}
	return t
}

// items are the values of a list.
func (t *tree) items() []*tree {
	if !t.isList() {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(t.values), func(v *tree) bool { return v == nil })
}

// str is a scalar's text, or "".
func (t *tree) str() string {
	if !t.isScalar() {
		return ""
	}
	return t.text
}

func (t *tree) isTrue() bool { return strings.EqualFold(t.str(), "true") }

// typed is the message in an Any, and its type without what stands before the last slash. A TypedStruct is
// what it stands for.
func (t *tree) typed() (name string, message *tree) {
	name = afterSlash(t.get("@type").str())
	if strings.HasSuffix(name, ".TypedStruct") {
		return afterSlash(t.get("type_url").str()), t.get("value")
	}
	return name, t
}

func afterSlash(s string) string { return s[strings.LastIndexByte(s, '/')+1:] }

// camel is a name in camelCase.
func camel(name string) string {
	words := strings.Split(name, "_")
	for i, w := range words[1:] {
		if w != "" {
			words[i+1] = strings.ToUpper(w[:1]) + w[1:]
		}
	}
	return strings.Join(words, "")
}

// snake is a name in snake_case.
func snake(name string) string {
	var b strings.Builder
	for _, r := range name {
		if r >= 'A' && r <= 'Z' {
			b.WriteByte('_')
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}

// maxFlow bounds a value that is shown in a finding.
const maxFlow = 300

// flow is t as one line of YAML, such as can be pasted; "…" if that would be long.
func (t *tree) flow() string {
	var b strings.Builder
	t.writeFlow(&b)
	if b.Len() > maxFlow {
		return "…"
	}
	return b.String()
}

func (t *tree) writeFlow(b *strings.Builder) {
	switch {
	case b.Len() > maxFlow || t == nil:
	case t.isMapping():
		b.WriteByte('{')
		for i, k := range t.keys {
			if i > 0 {
				b.WriteString(", ")
			}
			k.writeFlow(b)
			b.WriteString(": ")
			t.values[i].writeFlow(b)
		}
		b.WriteByte('}')
	case t.isList():
		b.WriteByte('[')
		for i, v := range t.values {
			if i > 0 {
				b.WriteString(", ")
			}
			v.writeFlow(b)
		}
		b.WriteByte(']')
	case t.quoted || strings.ContainsAny(t.text, ":#,{}[]\"' \n"):
		fmt.Fprintf(b, "%q", t.text)
	default:
		b.WriteString(t.text)
	}
}
