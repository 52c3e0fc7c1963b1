package envoycheck

import (
	"slices"
	"strings"
)

// part is what an action adds to a descriptor.
type part struct {
	key    string
	values []string // the only ones there can be; nil: any
	absent absence
	source string // what the value is taken from, such as "header x-user"; "" is nothing of the request's
	// address tells that it depends on who the client is.
	address bool
	at      *tree
}

// absence says what becomes of a descriptor when a part has no value.
type absence uint8

const (
	never    absence = iota // it always has one
	leftOut                 // the descriptor is sent without the part
	dropped                 // the descriptor isn't sent
	filtered                // the same, and that is what the action is for
)

// action reads an action's fields into p, whose key, by default the action's name, is set.
type action func(p *part, fields *tree, s *setting)

// setting is what actions depend on beside themselves.
type setting struct {
	serviceCluster string // of the Envoy; "" is unknown
	cluster        string // that the route goes to; "" is unknown
	formats        bool   // values are format strings, which they are not by default
	thrift         bool   // it is a Thrift filter that reads them
}

// actions are Envoy's by the name of their field.
var actions = map[string]action{
	"source_cluster":              func(p *part, _ *tree, s *setting) { p.only(s.serviceCluster) },
	"destination_cluster":         func(p *part, _ *tree, s *setting) { p.only(s.cluster) },
	"remote_address":              remoteAddress,
	"masked_remote_address":       remoteAddress,
	"generic_key":                 genericKey,
	"request_headers":             requestHeaders,
	"query_parameters":            queryParameters,
	"header_value_match":          headerValueMatch,
	"query_parameter_value_match": queryParameterValueMatch,
	"remote_address_match":        remoteAddressMatch,
	"metadata":                    metadata,
	"dynamic_metadata":            dynamicMetadata,
	"extension":                   extension,
}

// only makes value, if it is known, the only one.
func (p *part) only(value string) {
	if value != "" {
		p.values = []string{value}
	}
}

// named makes the action's descriptor_key, if it has one, the key.
func (p *part) named(fields *tree) {
	if key := fields.get("descriptor_key").str(); key != "" {
		p.key = key
	}
}

// literal makes the action's descriptor_value the only value.
func (p *part) literal(fields *tree, s *setting) {
	if value := fields.get("descriptor_value").str(); !s.formats || !isFormat(value) {
		p.values = []string{value}
	}
}

// isFormat tells whether a value has something between percent signs.
func isFormat(value string) bool {
	_, rest, _ := strings.Cut(value, "%")
	return strings.Contains(strings.ReplaceAll(rest, "%%", ""), "%")
}

// from says where the value comes from, and what becomes of the descriptor if it isn't there.
func (p *part) from(source string, fields *tree) {
	p.named(fields)
	p.source, p.absent = source, dropped
	if fields.get("skip_if_absent").isTrue() {
		p.absent = leftOut
	}
	if fields.get("default_value").str() != "" {
		p.absent = never
	}
}

func genericKey(p *part, fields *tree, s *setting) {
	p.named(fields)
	p.literal(fields, s)
}

// always are headers that every request has.
var always = []string{":path", ":method", ":authority", ":scheme", "host"}

func requestHeaders(p *part, fields *tree, _ *setting) {
	name := fields.get("header_name").str()
	p.from("header "+name, fields)
	if slices.Contains(always, strings.ToLower(name)) {
		p.absent = never
	}
}

func queryParameters(p *part, fields *tree, _ *setting) {
	p.from("query parameter "+fields.get("query_parameter_name").str(), fields)
}

func headerValueMatch(p *part, fields *tree, s *setting) {
	p.key = "header_match"
	p.named(fields)
	p.literal(fields, s)
	p.absent = filtered
}

func queryParameterValueMatch(p *part, fields *tree, s *setting) {
	p.key = "query_match"
	p.named(fields)
	p.literal(fields, s)
	p.absent = filtered
}

func remoteAddress(p *part, _ *tree, _ *setting) { p.address = true }

// remoteAddressMatch has a value that is always a format string.
func remoteAddressMatch(p *part, fields *tree, _ *setting) {
	p.named(fields)
	p.literal(fields, &setting{formats: true})
	p.absent, p.address = filtered, true
}

func metadata(p *part, fields *tree, _ *setting) {
	p.from("metadata "+metadataPath(fields), fields)
}

// dynamicMetadata is deprecated, and has no skip_if_absent.
func dynamicMetadata(p *part, fields *tree, _ *setting) {
	p.from("metadata "+metadataPath(fields), fields)
}

func metadataPath(fields *tree) string {
	path := []string{fields.get("metadata_key", "key").str()}
	for _, segment := range fields.get("metadata_key", "path").items() {
		path = append(path, segment.get("key").str())
	}
	return strings.Join(path, ".")
}

// extension is one of the descriptors made for rate limits, or any matching input, whose key is the extension's
// name.
func extension(p *part, fields *tree, _ *setting) {
	p.key = fields.get("name").str()
	kind, config := fields.get("typed_config").typed()
	switch {
	case strings.HasSuffix(kind, ".expr.v3.Descriptor"):
		p.from("expression", config)
		if config.get("skip_if_error").isTrue() {
			p.absent = leftOut
		}
	case strings.HasPrefix(kind, "envoy.extensions.rate_limit_descriptors."):
		p.from("claim "+config.get("claim_name").str(), config)
	default:
		p.source, p.absent = p.key, dropped
	}
}
