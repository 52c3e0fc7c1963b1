package descriptors

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"gopkg.in/yaml.v3"
)

// list is the list of some descriptors.
func (c *converter) list(children []*old) *yaml.Node {
	n := &yaml.Node{Kind: yaml.SequenceNode}
	for _, o := range children {
		n.Content = append(n.Content, c.node(o))
	}
	return n
}

// node is a descriptor. What is lost stands above it.
func (c *converter) node(o *old) *yaml.Node {
	n := mapping(nil, "key", quoted(o.key))
	if o.value != "" {
		n = mapping(n, "value", quoted(o.value))
	}
	shadow := o.shadow
	if o.limit != nil {
		n = mapping(n, "rate_limit", c.limitNode(o.limit))
		shadow = shadow || o.limit.shadow
	}
	for _, flag := range []struct {
		key string
		on  bool
	}{
		{"shadow_mode", shadow && o.limit != nil}, {"quota_mode", o.quota && o.limit != nil}, {"share_threshold", o.share},
		{"detailed_metric", o.detailed}, {"value_to_metric", o.valueMetric},
	} {
		if flag.on {
			n = mapping(n, flag.key, literal("true"))
		}
	}
	if len(o.metadata) > 0 {
		n = mapping(n, "metadata", jsonNode(o.metadata))
	}
	if len(o.below) > 0 {
		n = mapping(n, "descriptors", c.list(o.below))
	}
	lines := make([]string, len(o.lost))
	for i, text := range o.lost {
		lines[i] = "# Lost: " + commented(text) + "."
	}
	n.HeadComment = strings.Join(lines, "\n")
	return n
}

func (c *converter) limitNode(l *oldLimit) *yaml.Node {
	n, name, replaces := &yaml.Node{Kind: yaml.MappingNode}, l.name, l.replaces
	if name == "" && !l.unlimited {
		name = c.names.unnamed
	}
	if l.exempt {
		replaces = c.names.list
	}
	if name != "" {
		n = mapping(n, "name", quoted(name))
	}
	if l.unlimited {
		n = mapping(n, "unlimited", literal("true"))
	} else {
		n = mapping(n, "unit", quoted(l.unit.String()))
		n = mapping(n, "requests_per_unit", literal(strconv.FormatUint(uint64(l.requests), 10)))
	}
	if len(replaces) > 0 {
		list := &yaml.Node{Kind: yaml.SequenceNode}
		for _, r := range replaces {
			list.Content = append(list.Content, mapping(nil, "name", quoted(r)))
		}
		n = mapping(n, "replaces", list)
	}
	n.Style = yaml.FlowStyle
	return n
}

// jsonNode is a value of metadata.
func jsonNode(v any) *yaml.Node {
	switch v := v.(type) {
	case map[string]any:
		n := &yaml.Node{Kind: yaml.MappingNode}
		for _, key := range sortedKeys(v) {
			n.Content = append(n.Content, quoted(key), jsonNode(v[key]))
		}
		return n
	case []any:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		for _, item := range v {
			n.Content = append(n.Content, jsonNode(item))
		}
		return n
	case string:
		return quoted(v)
	case bool:
		return literal(strconv.FormatBool(v))
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1e15 {
			return literal(strconv.FormatFloat(v, 'f', -1, 64))
		}
		return literal(strconv.FormatFloat(v, 'g', -1, 64))
	}
	return literal("null")
}

// mapping adds a key to mapping n, or to a new one.
func mapping(n *yaml.Node, key string, value *yaml.Node) *yaml.Node {
	if n == nil {
		n = &yaml.Node{Kind: yaml.MappingNode}
	}
	n.Content = append(n.Content, quoted(key), value)
	return n
}

// literal is a number, a boolean or null.
func literal(text string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Value: text} }

// quoted is a text, in quotes unless it is a word that is nothing else in YAML 1.1 either.
func quoted(text string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text, Style: yaml.DoubleQuotedStyle}
	other := strings.ContainsFunc(text, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '_' || r == '/' || r == '-')
	})
	switch lower := strings.ToLower(text); {
	case other || lower == "" || lower[0] == '-' || lower == "true" || lower == "false" || lower == "null":
	case slices.Contains(oldBooleans, lower):
	default:
		n.Style = 0
	}
	return n
}

// commented is text for a comment, which ends with its line.
func commented(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || r == '\ufeff' {
			return ' '
		}
		return r
	}, text)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
