// Package accesslog reads the access logs of proxies and web servers, a line at a time, and of each line the fields
// that are asked for. What a line holds was chosen by clients: no error repeats it.
package accesslog

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// Format is how a log's lines are written.
type Format string

// The formats. Common is that of Apache and nginx, with or without what "combined" adds. Envoy is the default of Envoy
// or that of Istio, which a line's number of columns tells apart. JSON is an object on each line.
const (
	Common Format = "common"
	Envoy  Format = "envoy"
	JSON   Format = "json"
)

// Detect guesses a log's format by its first line.
func Detect(line []byte) Format {
	switch {
	case bytes.HasPrefix(line, []byte("{")):
		return JSON
	case bytes.HasPrefix(line, []byte("[")):
		return Envoy
	}
	return Common
}

// Record is what a line says.
type Record struct {
	// At is when the request came, in µs since the Unix epoch.
	At int64
	// Fields are those asked for, in their order. "" is one that the line doesn't have: also "-", as proxies write it.
	Fields []string
}

// Parser reads lines of one format. It is for one goroutine.
type Parser struct {
	parse func(line []byte, into []string) (instant []byte, err error)
	clock clock
	into  []string
}

// NewParser returns a Parser for some fields. Those of JSON are paths: names with dots between them, or a name that has
// dots itself. timeField is that of JSON's time; "" looks for the usual names. An unknown field is an error that lists
// those there are.
func NewParser(f Format, fields []string, timeField string) (*Parser, error) {
	p := &Parser{into: make([]string, len(fields))}
	if f == JSON {
		p.parse = newObjects(fields, timeField).parse
		return p, nil
	}
	if timeField != "" {
		return nil, fmt.Errorf("lines in %s format have their time in one place; only JSON's is in a field of any name", f)
	}
	for _, name := range fields {
		if known := FieldsOf(f); !slices.Contains(known, name) {
			return nil, fmt.Errorf("a line in %s format has no field %s; there are %s", f, name, strings.Join(known, ", "))
		}
	}
	p.parse = newColumns(f, fields).parse
	return p, nil
}

// Parse reads a line without its end. The record is good until the next call. The error says what is wrong with the
// line, in words.
func (p *Parser) Parse(line []byte) (Record, error) {
	clear(p.into)
	instant, err := p.parse(line, p.into)
	if err != nil {
		return Record{}, err
	}
	at, err := p.clock.read(instant)
	if err != nil {
		return Record{}, err
	}
	return Record{At: at, Fields: p.into}, nil
}
