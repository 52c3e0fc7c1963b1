package accesslog

import (
	"encoding/json"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/tidwall/gjson"
)

// usualTimes are the names that the time of a request usually has, in the order of trust.
var usualTimes = []string{"start_time", "time", "timestamp", "@timestamp", "ts"}

// objects reads lines that are JSON objects.
type objects struct {
	fields []jsonPath
	times  []jsonPath
}

// jsonPath is a field as gjson wants it: as one name, and as names with dots between them, or "".
type jsonPath struct{ whole, nested string }

func newObjects(fields []string, timeField string) *objects {
	o := &objects{}
	for _, name := range fields {
		o.fields = append(o.fields, newJSONPath(name))
	}
	times := usualTimes
	if timeField != "" {
		times = []string{timeField}
	}
	for _, name := range times {
		o.times = append(o.times, newJSONPath(name))
	}
	return o
}

func newJSONPath(name string) jsonPath {
	p := jsonPath{whole: gjson.Escape(name)}
	if strings.Contains(name, ".") {
		parts := strings.Split(name, ".")
		for i, part := range parts {
			parts[i] = gjson.Escape(part)
		}
		p.nested = strings.Join(parts, ".")
	}
	return p
}

func (o *objects) parse(line []byte, into []string) (instant []byte, err error) {
	switch {
	case !utf8.Valid(line):
		return nil, errUTF8
	case !json.Valid(line):
		return nil, errors.New("the line is not JSON")
	case line[0] != '{':
		return nil, errors.New("the line is not a JSON object")
	}
	for i, p := range o.fields {
		into[i] = p.text(line)
	}
	for _, p := range o.times {
		if text := p.text(line); text != "" {
			return []byte(text), nil
		}
	}
	return nil, errors.New("the line has no time")
}

// text is a field's value, or "" if there is none: an object, a list and null are none.
func (p jsonPath) text(line []byte) string {
	v := gjson.GetBytes(line, p.whole)
	if !v.Exists() && p.nested != "" {
		v = gjson.GetBytes(line, p.nested)
	}
	switch v.Type {
	case gjson.String:
		if v.Str == "-" {
			return ""
		}
		return strings.ToValidUTF8(v.Str, "\uFFFD") // of escapes
	case gjson.Number, gjson.True, gjson.False:
		return v.Raw
	case gjson.Null, gjson.JSON:
	}
	return ""
}
