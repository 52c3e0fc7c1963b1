package descriptors

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// File is one rule file as it was read: its name, for messages and for order, and its YAML.
type File struct {
	Name string
	Data []byte
	// Unread is why it could not be read, which makes it a bad file without Data.
	Unread error
	// Generated says that no person wrote the YAML. Problems then have no lines, and descriptors of one key and value
	// are made one, with a Warning, since their author can't.
	Generated bool

	// A file that is part of another is shown under that one's name, so many lines and columns later.
	shown        string
	line, column int
}

// block is a kind of mapping in a rule file.
type block uint8

const (
	fileBlock block = iota
	defaultsBlock
	descriptorBlock
	limitBlock
	limitsBlock
	replacesBlock
	keysBlock
	maskBlock
)

// blocks lists the keys of each block, and where the block stands, for those who look for a key's place.
var blocks = [...]struct {
	place string
	keys  []string
}{
	fileBlock: {"at the top of the file", []string{
		"domain", "domains", "keys", "descriptors", "defaults", "partition_by",
	}},
	defaultsBlock: {"in defaults", []string{"algorithm", "count_denied", "on_store_failure"}},
	descriptorBlock: {"beside key, in the descriptor", []string{
		"key", "value", "values", "cidrs", "exempt", "max_values", "rate_limit", "rate_limits", "descriptors", "shadow_mode", "quota_mode", "count_denied", "on_store_failure",
		"share_threshold", "detailed_metric", "value_to_metric", "metadata",
	}},
	limitBlock: {"inside rate_limit", []string{
		"unit", "requests_per_unit", "unit_multiplier", "unlimited", "name", "replaces", "algorithm", "burst",
	}},
	limitsBlock: {"in an entry of rate_limits", []string{
		"unit", "requests_per_unit", "unit_multiplier", "name", "replaces", "algorithm", "burst", "shadow_mode",
	}},
	replacesBlock: {"in an entry of replaces", []string{"name"}},
	keysBlock:     {"in an entry of keys", []string{"strip_query", "lowercase", "ip_mask", "hash"}},
	maskBlock:     {"in ip_mask", []string{"v4", "v6"}},
}

func (b block) keys() []string { return blocks[b].keys }

// misplaced says where a key that b does not have belongs, or what it was meant to be.
func (b block) misplaced(key string) string {
	switch {
	case b == limitBlock && slices.Contains(descriptorBlock.keys(), key):
		return key + " belongs one level up, beside rate_limit (here the replaced service ignores it)"
	case b == limitsBlock && slices.Contains(descriptorBlock.keys(), key):
		return key + " belongs one level up, beside rate_limits"
	}
	if word, ok := Nearest(key, b.keys()); ok {
		return "unknown key; did you mean " + word + "?"
	}
	for other := range blocks {
		if slices.Contains(blocks[other].keys, key) {
			return fmt.Sprintf("%s does not belong here; it stands %s", key, blocks[other].place)
		}
	}
	return "unknown key; this block has " + strings.Join(b.keys(), ", ")
}

// spec is one file, read but not yet checked as a whole.
type spec struct {
	domain string
	// partition is the key whose value says which counters belong together.
	partition string
	// domains are globs of domains that the file has defaults for, instead of rules.
	domains   []string
	domainsAt *yaml.Node
	defaults  partialDefaults
	keys      map[string]*preparation
	keysAt    *yaml.Node
	list      *yaml.Node // descriptors
	at        *yaml.Node
	children  []*descriptorSpec
}

type descriptorSpec struct {
	at         *yaml.Node
	path       string
	key, value string
	literal    bool // a star in value is a star
	values     []string
	cidrs      []netip.Prefix
	exempt     bool
	maxValues  uint32
	limits     []*limitSpec
	children   []*descriptorSpec

	shadow, quota                bool
	share, detailed, valueMetric bool
	metadata                     map[string]any
	countDenied                  bool
	onFailure                    limiter.FailurePolicy
	policyAt                     []field // flags that mean nothing without a limit
}

type limitSpec struct {
	at         *yaml.Node
	name       string
	unit       Unit
	multiplier uint32
	limit      limiter.Limit
	unlimited  bool
	shadow     bool
	replaces   []string
	written    map[string]*yaml.Node // keys
}

// read reads one file. It returns nil if the file can't be used, and says why in r.problems. What is said at
// the top of the file holds wherever it stands there.
func (r *reader) read(data []byte, of defaultsOf) *spec {
	root, ok := r.document(data)
	if !ok {
		return nil
	}
	s := &spec{at: root}
	for _, f := range r.fields(root, "", fileBlock) {
		r.fileField(s, f)
	}
	switch {
	case s.domains != nil && (s.list != nil || s.domain != ""):
		r.errorf(s.domainsAt, "domains", "a file has defaults for the rules of others (domains), or rules (domain, descriptors); make two files")
	case s.domains != nil:
	case s.domain == "":
		r.errorf(s.at, "domain", "a file needs a domain that is not empty, the one that Envoy's filter names")
	}
	if s.domains != nil {
		return s
	}
	others := of.domain(s.domain)
	r.base, r.keys = s.defaults.over(others.defaults.over(of.settings)), map[string]*preparation{}
	maps.Copy(r.keys, others.keys)
	maps.Copy(r.keys, s.keys)
	s.partition = cmp.Or(s.partition, others.partition)
	if s.list != nil {
		s.children = r.descriptors(s.list, s.domain, 1)
	}
	return s
}

func (r *reader) fileField(s *spec, f field) {
	switch f.key.Value {
	case "domain":
		s.domain, s.at = r.text(f.value, "domain"), f.value
	case "domains":
		s.domains, s.domainsAt = r.globs(f.value), f.key
	case "descriptors":
		s.list = f.value
	case "defaults":
		s.defaults = r.partialDefaults(f.value)
	case "keys":
		s.keys, s.keysAt = r.preparations(f.value), f.key
	case "partition_by":
		s.partition = r.text(f.value, "partition_by")
	}
}

// document returns the root of the file's first document.
func (r *reader) document(data []byte) (*yaml.Node, bool) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var doc, next yaml.Node
	switch err := decoder.Decode(&doc); {
	case errors.Is(err, io.EOF):
		r.errorf(&yaml.Node{}, "", "nothing in the file; it needs a domain, or delete it")
		return nil, false
	case err != nil:
		r.problems = append(r.problems, yamlProblem(r.file, data, err))
		return nil, false
	}
	if err := decoder.Decode(&next); err == nil && len(next.Content) > 0 {
		r.report(Warning, next.Content[0], "", "a second YAML document is not read; put it into a file of its own")
	}
	return r.resolve(doc.Content[0]), true
}

// yamlProblem turns the library's "yaml: line 3: did not find …" into a problem with the line of the mistake,
// or of where the broken item begins. The library counts from 0 in errors of its parser, from 1 in those of
// its scanner, and leaves out line 0.
func yamlProblem(file string, data []byte, err error) Problem {
	p := Problem{File: file, Line: 1, Column: 1, Text: strings.TrimPrefix(err.Error(), "yaml: ")}
	if n, _ := fmt.Sscanf(p.Text, "line %d:", &p.Line); n == 1 {
		_, p.Text, _ = strings.Cut(p.Text, ": ")
		if strings.HasPrefix(p.Text, "did not find expected") {
			p.Line++
		}
	}
	if strings.Contains(p.Text, "UTF-8") || strings.HasPrefix(p.Text, "control characters") {
		p.Line, p.Column = badCharacter(data) // the library tells no place
	}
	lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	var anchor string
	if n, _ := fmt.Sscanf(p.Text, "unknown anchor '%s", &anchor); n == 1 {
		alias := "*" + strings.TrimSuffix(anchor, "'")
		p.Line = 1 + max(0, slices.IndexFunc(lines, func(l string) bool { return strings.Contains(l, alias) }))
	}
	p.Line = min(p.Line, len(lines))
	p.Text = "not valid YAML: " + p.Text
	if strings.HasPrefix(lines[p.Line-1], "\t") {
		p.Text += "; indent by spaces, not by tabs"
	}
	return p
}

// badCharacter is where the first character is that is none of YAML's, or no character at all.
func badCharacter(data []byte) (line, column int) {
	line, column = 1, 1
	for len(data) > 0 {
		c, size := utf8.DecodeRune(data)
		switch {
		case c == '\n':
			line, column = line+1, 0
		case c == utf8.RuneError && size == 1, unicode.IsControl(c) && c != '\t' && c != '\r' && c != '\u0085':
			return line, column
		}
		data, column = data[size:], column+1
	}
	return 1, 1
}

func (r *reader) descriptors(list *yaml.Node, path string, depth int) []*descriptorSpec {
	if depth > maxDepth {
		r.errorf(list, path, "descriptors are nested more than %d deep", maxDepth)
		return nil
	}
	items := r.items(list, join(path, "descriptors"))
	specs := make([]*descriptorSpec, 0, len(items))
	for _, n := range items {
		specs = append(specs, r.descriptor(n, path, depth))
	}
	return specs
}

func (r *reader) descriptor(n *yaml.Node, parent string, depth int) *descriptorSpec {
	s := &descriptorSpec{at: n, maxValues: DefaultMaxValues, countDenied: r.base.CountDenied, onFailure: r.base.OnStoreFailure}
	if n.Kind != yaml.MappingNode {
		r.fields(n, join(parent, "descriptors"), descriptorBlock)
		return s
	}
	fields := r.merged(n, parent, 0)
	r.identity(s, fields, parent)
	r.checkFields(fields, s.path, descriptorBlock)
	if s.key == "" {
		r.errorf(n, s.path, "a descriptor needs a key that is not empty")
	}
	for _, f := range fields {
		r.descriptorField(s, f, depth)
	}
	r.checkLimits(s, fields)
	return s
}

// identity reads what a descriptor matches before anything else, since that is the path of the rest.
func (r *reader) identity(s *descriptorSpec, fields []field, parent string) {
	s.path = join(parent, "descriptors")
	for _, f := range fields {
		if f.key.Value == "key" {
			s.key, s.at = r.text(f.value, join(parent, "key")), f.key
		}
	}
	written := 0
	for _, f := range fields {
		path := join(parent, f.key.Value)
		switch f.key.Value {
		case "value":
			s.value = r.prepared(f.value, path, s.key, r.text(f.value, path))
		case "values":
			s.values = r.values(s, f.value, path)
		case "cidrs":
			s.cidrs = r.cidrs(f.value, path)
		default:
			continue
		}
		if written++; written > 1 {
			r.errorf(f.key, path, "a descriptor has one of value, values and cidrs; make two descriptors")
		}
	}
	s.literal = r.generated && s.value == s.key // as Envoy Gateway names routes, with the stars of their hosts
	if s.key != "" {
		s.path = join(parent, ruleName(s.key, s.matched()))
	}
}

// values are the values that a descriptor lists.
func (r *reader) values(s *descriptorSpec, n *yaml.Node, path string) []string {
	var values []string
	for _, item := range r.items(n, path) {
		value := r.text(item, path)
		switch {
		case value == "":
			r.errorf(item, path, "a value of the list is empty")
		case strings.Contains(value, "*"):
			r.errorf(item, path, "a star belongs into value; here it would be a star")
		}
		values = append(values, r.prepared(item, path, s.key, value))
	}
	if len(values) == 0 {
		r.errorf(n, path, "an empty list matches nothing; write values, or delete the line")
	}
	return values
}

func (r *reader) cidrs(n *yaml.Node, path string) []netip.Prefix {
	var list []netip.Prefix
	for _, item := range r.items(n, path) {
		text := r.text(item, path)
		network, err := netip.ParsePrefix(text)
		if err != nil {
			r.errorf(item, path, "%s is not a network, such as 10.0.0.0/8 or \"fd00::/8\"", describe(item))
			continue
		}
		if network != network.Masked() {
			r.errorf(item, path, "%s has bits behind its mask; write %s", text, network.Masked())
		}
		list = append(list, network.Masked())
	}
	if len(list) == 0 {
		r.errorf(n, path, "an empty list matches nothing; write networks, or delete the line")
	}
	return list
}

// matched is what the descriptor's value must be, in one text.
func (s *descriptorSpec) matched() string {
	switch {
	case len(s.values) > 0:
		return "{" + strings.Join(s.values, ",") + "}"
	case len(s.cidrs) > 0:
		texts := make([]string, len(s.cidrs))
		for i, c := range s.cidrs {
			texts[i] = c.String()
		}
		return "{" + strings.Join(texts, ",") + "}"
	}
	return s.value
}

// wild tells whether the descriptor's value is a wildcard.
func (s *descriptorSpec) wild() bool { return strings.Contains(s.value, "*") && !s.literal }

// several tells whether the descriptor matches more than one value, and not any.
func (s *descriptorSpec) several() bool {
	return s.wild() || len(s.values) > 0 || len(s.cidrs) > 0
}

func ruleName(key, value string) string {
	if value == "" {
		return key
	}
	return key + "_" + value
}

func (r *reader) descriptorField(s *descriptorSpec, f field, depth int) {
	path := join(s.path, f.key.Value)
	switch f.key.Value {
	case "rate_limit":
		if !isNull(f.value) {
			s.limits = append(s.limits, r.limit(f, path, limitBlock))
		}
	case "rate_limits":
		for i, item := range r.items(f.value, path) {
			s.limits = append(s.limits, r.limit(field{item, item}, fmt.Sprintf("%s[%d]", path, i), limitsBlock))
		}
	case "descriptors":
		s.children = r.descriptors(f.value, s.path, depth+1)
	case "shadow_mode", "quota_mode", "detailed_metric", "value_to_metric", "exempt":
		r.descriptorFlag(s, f, path)
	case "count_denied":
		s.countDenied = r.flag(f.value, path)
		s.policyAt = append(s.policyAt, f)
	case "on_store_failure":
		s.onFailure = r.failurePolicy(f.value, path)
		s.policyAt = append(s.policyAt, f)
	case "share_threshold":
		if s.share = r.flag(f.value, path); s.share && !s.several() {
			r.errorf(f.key, path, "share_threshold needs a value with a * in it, values or cidrs, whose matches then share one counter")
		}
	case "max_values":
		s.maxValues = r.number(f.value, path)
		s.policyAt = append(s.policyAt, f)
	case "metadata":
		s.metadata = r.metadata(f.value, path)
	}
}

// descriptorFlag reads a flag. Some act only beside a rate_limit.
func (r *reader) descriptorFlag(s *descriptorSpec, f field, path string) {
	on := r.flag(f.value, path)
	switch f.key.Value {
	case "value_to_metric":
		s.valueMetric = on
		return
	case "exempt":
		s.exempt = on
		return
	case "shadow_mode":
		s.shadow = on
	case "quota_mode":
		s.quota = on
	case "detailed_metric":
		s.detailed = on
	}
	if on {
		s.policyAt = append(s.policyAt, f)
	}
}

// limit reads the limit of f, a rate_limit or an entry of rate_limits.
func (r *reader) limit(f field, path string, b block) *limitSpec {
	s := &limitSpec{
		at: f.key, multiplier: 1, limit: limiter.Limit{Algorithm: r.base.Algorithm}, written: map[string]*yaml.Node{},
	}
	for _, g := range r.fields(f.value, path, b) {
		s.written[g.key.Value] = g.key
		r.limitField(s, g, join(path, g.key.Value))
	}
	if s.limit.Algorithm == limiter.TokenBucket && s.written["burst"] == nil {
		s.limit.Burst = s.limit.Requests
	}
	if f.value.Kind == yaml.MappingNode {
		r.checkLimit(s, path)
	}
	return s
}

// checkLimits checks what the limits of one descriptor are to each other.
func (r *reader) checkLimits(s *descriptorSpec, fields []field) {
	one := slices.IndexFunc(fields, func(f field) bool { return f.key.Value == "rate_limit" })
	list := slices.IndexFunc(fields, func(f field) bool { return f.key.Value == "rate_limits" })
	if s.exempt && len(s.limits) > 0 {
		r.errorf(s.limits[0].at, s.path, "exempt makes a request free; delete it, or the limit")
	}
	if one >= 0 && list >= 0 {
		r.errorf(fields[list].key, join(s.path, "rate_limits"), "there is a rate_limit, too; make it an entry of the list")
	}
	for i, l := range s.limits {
		same := slices.IndexFunc(s.limits[:i], func(o *limitSpec) bool {
			return o.limit.Algorithm == l.limit.Algorithm && o.limit.Period == l.limit.Period && l.unit.Valid()
		})
		if same >= 0 {
			r.errorf(l.at, join(s.path, "rate_limits"), "another %s limit per %s is at %d:%d, and they would be one counter; make one of the two",
				l.limit.Algorithm, l.unit.Words(l.multiplier), s.limits[same].at.Line, s.limits[same].at.Column)
		}
		if l.name != "" && slices.ContainsFunc(s.limits[:i], func(o *limitSpec) bool { return o.name == l.name }) {
			r.errorf(l.at, join(s.path, "rate_limits"), "another limit of this list has the name %q", l.name)
		}
	}
}

func (r *reader) limitField(s *limitSpec, f field, path string) {
	switch f.key.Value {
	case "unit":
		var ok bool
		if s.unit, ok = ParseUnit(r.text(f.value, path)); !ok {
			r.errorf(f.value, path, "unknown unit %s; %s", describe(f.value), unitMend(f.value.Value))
		}
	case "requests_per_unit":
		s.limit.Requests = r.number(f.value, path)
	case "unit_multiplier":
		if s.multiplier = r.number(f.value, path); s.multiplier == 0 && f.value.Value == "0" {
			r.errorf(f.value, path, "unit_multiplier is at least 1")
		}
	case "unlimited":
		s.unlimited = r.flag(f.value, path)
	case "name":
		s.name = r.text(f.value, path)
	case "replaces":
		s.replaces = r.replaces(f.value, path)
	case "algorithm":
		s.limit.Algorithm = r.algorithm(f.value, path)
	case "burst":
		s.limit.Burst = r.number(f.value, path)
	case "shadow_mode":
		s.shadow = r.flag(f.value, path)
	}
}

// unitMend says what to write instead of a unit that does not exist: "15m" is a common wish.
func unitMend(text string) string {
	var n uint32
	var letter string
	if k, _ := fmt.Sscanf(text, "%d%s", &n, &letter); k == 2 && n > 0 {
		for u := Second; u.Valid(); u++ {
			if strings.HasPrefix(u.String(), strings.ToLower(letter[:1])) {
				return fmt.Sprintf("write unit: %s and unit_multiplier: %d", u, n)
			}
		}
	}
	return "units are second, minute, hour, day, week, month, year" + suggest(text, unitNames())
}

func unitNames() []string {
	names := make([]string, 0, len(units))
	for _, u := range units[Second:] {
		names = append(names, u.name)
	}
	return names
}

func (r *reader) checkLimit(s *limitSpec, path string) {
	written := s.written
	if s.unlimited {
		if at := written["unit"]; at != nil {
			r.errorf(at, join(path, "unit"), "an unlimited rate_limit has no unit; delete the line, or unlimited")
		}
		if at := written["requests_per_unit"]; at != nil {
			r.report(Warning, at, join(path, "requests_per_unit"), "no effect: the limit is unlimited; delete the line")
		}
		return
	}
	if written["unit"] == nil {
		r.errorf(s.at, path, "unit is missing; write second, minute, hour, day, week, month or year")
	}
	if written["requests_per_unit"] == nil {
		r.errorf(s.at, path, "requests_per_unit is missing; write 0 to refuse everything")
	}
	if !s.unit.Valid() {
		return
	}
	period, ok := s.unit.Period(s.multiplier)
	if s.limit.Period = period; !ok || period > limiter.MaxPeriod {
		r.errorf(s.at, path, "a period of %s is longer than 10 years", s.unit.Words(s.multiplier))
		return
	}
	if err := s.limit.Validate(); err != nil {
		r.errorf(s.at, path, "%s", err)
	}
	if slices.Contains(s.replaces, s.name) && s.name != "" {
		r.errorf(written["replaces"], join(path, "replaces"), "a limit can't replace itself; delete %q", s.name)
	}
}

func (r *reader) replaces(n *yaml.Node, path string) []string {
	var names []string
	for _, item := range r.items(n, path) {
		name := ""
		for _, f := range r.fields(item, path, replacesBlock) {
			if f.key.Value == "name" {
				name = r.text(f.value, join(path, "name"))
			}
		}
		if name == "" && item.Kind == yaml.MappingNode {
			r.errorf(item, path, "an entry of replaces needs the name of the limit that it replaces")
		}
		names = append(names, name)
	}
	return names
}

func (r *reader) algorithm(n *yaml.Node, path string) limiter.Algorithm {
	a, err := limiter.ParseAlgorithm(r.text(n, path))
	if err != nil {
		r.errorf(n, path, "%s", err)
	}
	return a
}

func (r *reader) failurePolicy(n *yaml.Node, path string) limiter.FailurePolicy {
	p, err := limiter.ParseFailurePolicy(r.text(n, path))
	if err != nil {
		r.errorf(n, path, "%s", err)
	}
	return p
}

// metadata is a mapping in the terms of JSON: strings, float64, booleans, nil, lists and mappings of them.
func (r *reader) metadata(n *yaml.Node, path string) map[string]any {
	if isNull(n) {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		r.errorf(n, path, "want a mapping, got %s", describe(n))
		return nil
	}
	m, _ := r.json(n, path, 0).(map[string]any)
	return m
}

func (r *reader) json(n *yaml.Node, path string, depth int) any {
	switch n = r.resolve(n); {
	case depth > maxDepth:
		r.errorf(n, path, "metadata is nested more than %d deep", maxDepth)
	case n.Kind == yaml.MappingNode:
		m := map[string]any{}
		for _, f := range r.merged(n, path, 0) {
			r.checkMetadata(f, join(path, f.key.Value))
			m[f.key.Value] = r.json(f.value, join(path, f.key.Value), depth+1)
		}
		return m
	case n.Kind == yaml.SequenceNode:
		list := make([]any, len(n.Content))
		for i, c := range n.Content {
			list[i] = r.json(c, path, depth+1)
		}
		return list
	default:
		return r.scalar(n, path)
	}
	return nil
}

// scalar is a metadata value. Numbers are float64, as in google.protobuf.Struct; what is neither number,
// boolean nor null is the text as written.
func (r *reader) scalar(n *yaml.Node, path string) any {
	var number float64
	switch n.Tag {
	case "!!null":
		return nil
	case "!!bool":
		return strings.EqualFold(n.Value, "true")
	case "!!int", "!!float":
		if err := n.Decode(&number); err != nil || number != number || number > 1e308 || number < -1e308 {
			r.errorf(n, path, "%s is not a number that metadata can hold; put it in quotes", n.Value)
		}
		return number
	}
	return n.Value
}
