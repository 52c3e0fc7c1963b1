package simulate

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
)

// Mapping makes requests of fields, as the actions of a proxy make descriptors of what it knows of a request.
type Mapping struct {
	fields      []string
	descriptors [][]entryTemplate
	cost        template
}

type entryTemplate struct {
	key   string
	value template
}

// template is texts, and indexes of fields between them: texts[0], fields[0], texts[1], …
type template struct {
	texts  []string
	fields []int
}

// NewMapping reads descriptors such as "remote_address={remote_address},path={path}", of which each makes one of a
// request's, and what they cost: a number, a field such as "{tokens}", or "".
func NewMapping(list []string, cost string) (*Mapping, error) {
	if len(list) == 0 {
		return nil, errors.New(`no descriptor; say what the proxy makes of a request, such as --descriptor "user={user}"`)
	}
	m := &Mapping{}
	for _, text := range list {
		var entries []entryTemplate
		for _, entry := range strings.Split(text, ",") {
			key, value, ok := strings.Cut(entry, "=")
			if !ok || key == "" || strings.ContainsAny(key, "{}") {
				return nil, fmt.Errorf("%q is not an entry; write key=value, where {field} in the value stands for a field of the log", entry)
			}
			t, err := m.template(value)
			if err != nil {
				return nil, err
			}
			entries = append(entries, entryTemplate{key, t})
		}
		m.descriptors = append(m.descriptors, entries)
	}
	var err error
	m.cost, err = m.template(cost)
	return m, err
}

// Fields are those that the mapping needs, each once.
func (m *Mapping) Fields() []string { return m.fields }

func (m *Mapping) template(text string) (template, error) {
	var t template
	for {
		before, rest, opens := strings.Cut(text, "{")
		name, after, closes := strings.Cut(rest, "}")
		t.texts = append(t.texts, before)
		switch {
		case strings.Contains(before, "}") || opens && (!closes || name == ""):
			return t, fmt.Errorf("%q: want {field}, with both braces and a name between them", text)
		case !opens:
			return t, nil
		}
		i := slices.Index(m.fields, name)
		if i < 0 {
			i = len(m.fields)
			m.fields = append(m.fields, name)
		}
		t.fields = append(t.fields, i)
		text = after
	}
}

// fill is the text with the fields in it; ok is false if one is missing.
func (t *template) fill(fields []string) (text string, ok bool) {
	if len(t.fields) == 1 && t.texts[0] == "" && t.texts[1] == "" {
		return fields[t.fields[0]], fields[t.fields[0]] != ""
	}
	var b strings.Builder
	for i, text := range t.texts {
		b.WriteString(text)
		if i == len(t.fields) {
			break
		}
		value := fields[t.fields[i]]
		if value == "" {
			return "", false
		}
		b.WriteString(value)
	}
	return b.String(), true
}

var errCost = errors.New("what it costs is not a whole number")

// Request makes the request of fields, in the order of Fields. A descriptor with a field that is missing is left out,
// as Envoy does; a request may have none left. What is missing in the cost makes it 1.
func (m *Mapping) Request(at int64, fields []string) (*Request, error) {
	r := &Request{At: at, Descriptors: make([][]descriptors.Entry, 0, len(m.descriptors))}
	for _, d := range m.descriptors {
		if entries := filled(d, fields); entries != nil {
			r.Descriptors = append(r.Descriptors, entries)
		}
	}
	text, ok := m.cost.fill(fields)
	if !ok || text == "" {
		return r, nil
	}
	var err error
	if r.Cost, err = strconv.ParseUint(text, 10, 64); err != nil {
		return nil, errCost
	}
	r.Costs = true
	return r, nil
}

func filled(d []entryTemplate, fields []string) []descriptors.Entry {
	entries := make([]descriptors.Entry, len(d))
	for i := range d {
		value, ok := d[i].value.fill(fields)
		if !ok {
			return nil
		}
		entries[i] = descriptors.Entry{Key: d[i].key, Value: value}
	}
	return entries
}
