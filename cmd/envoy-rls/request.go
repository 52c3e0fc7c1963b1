package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// descriptorTexts are the entries of each descriptor of a command line: those that stand alone, and those of -d, with
// commas between them. An empty text is a descriptor without entries.
func descriptorTexts(entries, more []string) [][]string {
	var lists [][]string
	if len(entries) > 0 {
		lists = append(lists, entries)
	}
	for _, d := range more {
		var list []string
		if d != "" {
			list = strings.Split(d, ",")
		}
		lists = append(lists, list)
	}
	return lists
}

// requestOf is the request for descriptors whose entries are written as key=value.
func requestOf(domain string, lists [][]string, hits clientHits, limit clientLimit) (*ratelimit.RateLimitRequest, error) {
	if len(lists) == 0 {
		return nil, errors.New("no descriptor; give its entries as key=value")
	}
	req := &ratelimit.RateLimitRequest{Domain: domain}
	for _, list := range lists {
		d, err := descriptorOf(list)
		if err != nil {
			return nil, err
		}
		d.Limit, d.IsNegativeHits = limit.override(), hits.giveBack
		if hits.count != 1 || hits.giveBack {
			d.HitsAddend = wrapperspb.UInt64(hits.count)
		}
		req.Descriptors = append(req.Descriptors, d)
	}
	return req, nil
}

func descriptorOf(entries []string) (*common.RateLimitDescriptor, error) {
	d := &common.RateLimitDescriptor{}
	for _, text := range entries {
		key, value, ok := strings.Cut(text, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("%q is not an entry; write key=value", text)
		}
		d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	return d, nil
}

// errNoRequest is for JSON that tells of no request.
var errNoRequest = errors.New("no request in it: want a RateLimitRequest, or a line of Envoy's access log that has the rate limit filter's " +
	"dynamic metadata: %DYNAMIC_METADATA(envoy.filters.http.ratelimit)% in its json_format, and --dynamic-metadata (RESPONSE_DYNAMIC_METADATA) here")

// maxJSONDepth bounds how deep a request is looked for.
const maxJSONDepth = 8

// readRequest reads a request from JSON: a RateLimitRequest as protojson has it, or a line of an access log of Envoy's
// somewhere in which, as an object or as text, is the dynamic metadata that an answer's request is told in:
// {"domain": "shop", "descriptors": [{"entries": ["user=ann"], "hitsAddend": 2, "limit": "requests_per_unit:4 unit:DAY"}]}.
// There, a key ends at its first =.
func readRequest(data []byte) (*ratelimit.RateLimitRequest, error) {
	var line any
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber() // a cost has up to 64 bits
	if err := decoder.Decode(&line); err != nil {
		return nil, fmt.Errorf("not JSON: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one line or value; give one request at a time, as head -1 does")
	}
	told := findRequest(line, 0)
	if told == nil {
		return nil, errNoRequest
	}
	text, err := json.Marshal(told)
	if err != nil {
		return nil, err
	}
	var echo echoedRequest
	if json.Unmarshal(text, &echo) == nil {
		return echo.request()
	}
	req := &ratelimit.RateLimitRequest{}
	if err := protojson.Unmarshal(text, req); err != nil {
		return nil, fmt.Errorf("not a RateLimitRequest: %w", err)
	}
	return req, nil
}

// findRequest is the first object in v, in the order of keys, that has descriptors, or nil.
func findRequest(v any, depth int) map[string]any {
	if depth > maxJSONDepth {
		return nil
	}
	switch v := v.(type) {
	case map[string]any:
		if list, ok := v["descriptors"].([]any); ok && len(list) > 0 {
			return v
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if found := findRequest(v[key], depth+1); found != nil {
				return found
			}
		}
	case string:
		var inner map[string]any
		if strings.HasPrefix(v, "{") && json.Unmarshal([]byte(v), &inner) == nil {
			return findRequest(inner, depth+1)
		}
	}
	return nil
}

// echoedRequest is a request as an answer's dynamic metadata tells it.
type echoedRequest struct {
	Domain      string
	HitsAddend  float64
	Descriptors []struct {
		Entries    []string
		HitsAddend *float64
		Limit      string // in protobuf's text format
	}
}

func (e *echoedRequest) request() (*ratelimit.RateLimitRequest, error) {
	hits, err := wholeHits(e.HitsAddend, math.MaxUint32)
	if err != nil {
		return nil, err
	}
	req := &ratelimit.RateLimitRequest{Domain: e.Domain, HitsAddend: uint32(hits)}
	for i := range e.Descriptors {
		told := &e.Descriptors[i]
		d, err := descriptorOf(told.Entries)
		if err != nil {
			return nil, err
		}
		if told.HitsAddend != nil {
			hits, err := wholeHits(*told.HitsAddend, 1<<53)
			if err != nil {
				return nil, err
			}
			d.HitsAddend = wrapperspb.UInt64(hits)
		}
		if told.Limit != "" {
			d.Limit = &common.RateLimitDescriptor_RateLimitOverride{}
			if err := prototext.Unmarshal([]byte(told.Limit), d.Limit); err != nil {
				return nil, fmt.Errorf("the limit %q of a descriptor is not one: %w", told.Limit, err)
			}
		}
		req.Descriptors = append(req.Descriptors, d)
	}
	return req, nil
}

func wholeHits(n, most float64) (uint64, error) {
	if n < 0 || n > most || n != math.Trunc(n) {
		return 0, fmt.Errorf("hitsAddend is %g; want a whole number of 0 or more", n)
	}
	return uint64(n), nil
}
