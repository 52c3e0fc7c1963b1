package accesslog

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// layouts are the columns of a format's lines, the shortest first. A line may have more columns than Common's; of the
// others it has exactly as many as one of the layouts.
var layouts = map[Format][][]string{
	Common: {
		{"remote_address", "ident", "user", "time", "request", "status", "bytes"},
		{"remote_address", "ident", "user", "time", "request", "status", "bytes", "referer", "user_agent"},
		{"remote_address", "ident", "user", "time", "request", "status", "bytes", "referer", "user_agent", "x_forwarded_for"},
	},
	Envoy: {
		{
			"time", "request", "response_code", "response_flags", "bytes_received", "bytes_sent", "duration",
			"upstream_service_time", "x_forwarded_for", "user_agent", "request_id", "authority", "upstream_host",
		},
		{
			"time", "request", "response_code", "response_flags", "response_code_details", "connection_termination_details",
			"upstream_transport_failure_reason", "bytes_received", "bytes_sent", "duration", "upstream_service_time",
			"x_forwarded_for", "user_agent", "request_id", "authority", "upstream_host", "upstream_cluster",
			"upstream_local_address", "downstream_local_address", "downstream_remote_address", "requested_server_name",
			"route_name",
		},
	},
}

// requestParts are fields that are parts of the column "request".
var requestParts = []string{"method", "path", "protocol"}

// FieldsOf are the fields that lines of a format may have, or nil if it is JSON.
func FieldsOf(f Format) []string {
	var names []string
	for _, layout := range layouts[f] {
		for _, name := range layout {
			switch {
			case name == "request":
				names = append(names, requestParts...)
			case name != "time":
				names = append(names, name)
			}
		}
	}
	if f == Envoy {
		names = append(names, "remote_address")
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// columns reads lines of columns that spaces part.
type columns struct {
	format Format
	fields []string
	found  [][]byte
}

func newColumns(f Format, fields []string) *columns { return &columns{format: f, fields: fields} }

func (c *columns) parse(line []byte, into []string) (instant []byte, err error) {
	if !utf8.Valid(line) {
		return nil, errUTF8
	}
	if c.found, err = split(line, c.found[:0]); err != nil {
		return nil, err
	}
	layout, err := c.layout()
	if err != nil {
		return nil, err
	}
	for i, name := range c.fields {
		if into[i], err = c.field(layout, name); err != nil {
			return nil, err
		}
	}
	return c.found[slices.Index(layout, "time")], nil
}

// layout is that of the line, by its number of columns.
func (c *columns) layout() ([]string, error) {
	all, n := layouts[c.format], len(c.found)
	for i := len(all) - 1; i >= 0; i-- {
		if n == len(all[i]) || n > len(all[i]) && c.format == Common {
			return all[i], nil
		}
	}
	want := make([]string, 0, len(all))
	for _, layout := range all {
		want = append(want, strconv.Itoa(len(layout)))
	}
	return nil, fmt.Errorf("%d columns, where %s format has %s", n, c.format, strings.Join(want, " or "))
}

func (c *columns) field(layout []string, name string) (string, error) {
	if part := slices.Index(requestParts, name); part >= 0 {
		request, err := c.column(layout, "request")
		return requestPart(request, part), err
	}
	if name == "remote_address" && c.format == Envoy {
		return c.client(layout)
	}
	return c.column(layout, name)
}

// client is the address that Envoy takes for the client's at the edge: what it appended to X-Forwarded-For.
func (c *columns) client(layout []string) (string, error) {
	forwarded, err := c.column(layout, "x_forwarded_for")
	if err != nil || forwarded != "" {
		return strings.TrimSpace(forwarded[strings.LastIndexByte(forwarded, ',')+1:]), err
	}
	peer, err := c.column(layout, "downstream_remote_address")
	if host, _, err := net.SplitHostPort(peer); err == nil {
		return host, nil
	}
	return peer, err
}

// column is the text of a column, or "" if the line doesn't have it.
func (c *columns) column(layout []string, name string) (string, error) {
	i := slices.Index(layout, name)
	if i < 0 || string(c.found[i]) == "-" {
		return "", nil
	}
	if bytes.IndexByte(c.found[i], '\\') < 0 {
		return string(c.found[i]), nil
	}
	text, err := strconv.Unquote(`"` + string(c.found[i]) + `"`)
	if err != nil { // whoever wrote it doesn't escape
		return string(c.found[i]), nil
	}
	if !utf8.ValidString(text) {
		return "", errUTF8
	}
	return text, nil
}

// requestPart is the method, the path or the protocol of "GET /a b HTTP/1.1".
func requestPart(request string, part int) string {
	method, rest, _ := strings.Cut(request, " ")
	path, protocol := rest, ""
	if i := strings.LastIndexByte(rest, ' '); i >= 0 {
		path, protocol = rest[:i], rest[i+1:]
	}
	text := [...]string{method, path, protocol}[part]
	if text == "-" {
		return ""
	}
	return text
}

var (
	errUTF8  = errors.New("the line is not UTF-8")
	errQuote = errors.New("a quoted column has no end")
)

// split appends the columns of a line. Brackets and quotes around one are not part of it.
func split(line []byte, into [][]byte) ([][]byte, error) {
	for {
		line = bytes.TrimLeft(line, " ")
		if len(line) == 0 {
			return into, nil
		}
		end := columnEnd(line)
		if end < 0 {
			return into, errQuote
		}
		into = append(into, bare(line[:end]))
		line = line[end:]
	}
}

// columnEnd is the length of a line's first column, or -1.
func columnEnd(line []byte) int {
	if line[0] == '"' {
		return quotedEnd(line)
	}
	from := 0
	if line[0] == '[' { // a time, with a space in it, or an address of IPv6
		from = max(bytes.IndexByte(line, ']'), 0)
	}
	if i := bytes.IndexByte(line[from:], ' '); i >= 0 {
		return from + i
	}
	return len(line)
}

func quotedEnd(line []byte) int {
	for i := 1; i < len(line); i++ {
		switch line[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return -1
}

func bare(column []byte) []byte {
	last := len(column) - 1
	if last > 0 && (column[0] == '"' && column[last] == '"' || column[0] == '[' && column[last] == ']') {
		return column[1:last]
	}
	return column
}
