package descriptors

import "strings"

// MetricPath is the path of a limit in metrics: the domain and each level's key, with _value where there is one, as
// the service that this one replaces has it. One of several limits of a rule adds / and what it is called.
type MetricPath struct {
	Path string
	// Keys are the first two levels of Path, with all that follows the second if nothing but the limit's name does.
	Keys [2]string
}

// level is a descriptor on the way to a rule, as metrics tell of it.
type level struct {
	key, value string // as in the file; value is "" for any
	several    bool   // it matches more than one value
	perValue   bool   // value_to_metric
	shared     bool   // share_threshold
}

// PerValue tells whether metrics tell the values of r apart: whether ValuePath differs from MetricPath.
func (r *Rule) PerValue() bool { return r.perValue }

// MetricPath is the path of a limit of r, which is l.Path, and its keys.
func (r *Rule) MetricPath(l *Limit) MetricPath {
	b := newPathBuilder(r.Domain)
	for i := range r.levels {
		b.level(r.levels[i].key, r.levels[i].value, false)
	}
	return b.path(r.suffix(l))
}

// ValuePath is the path of a limit of r for a descriptor that r matched, with the values that value_to_metric and
// detailed_metric ask for in it. It may hold anything that a client sends.
func (r *Rule) ValuePath(l *Limit, entries []Entry) MetricPath {
	b := newPathBuilder(r.Domain)
	for i := range r.levels {
		value, always := r.levels[i].metricValue(entries[i].Value, r.detailed)
		b.level(r.levels[i].key, value, always)
	}
	return b.path(r.suffix(l))
}

// SentPath is the path of a limit that a request brought along, with all its values in it. It may hold anything that a
// client sends.
func SentPath(domain string, entries []Entry) MetricPath {
	b := newPathBuilder(domain)
	for _, e := range entries {
		b.level(e.Key, e.Value, false)
	}
	return b.path("")
}

// suffix is what l's path has behind that of its rule.
func (r *Rule) suffix(l *Limit) string { return strings.TrimPrefix(l.Path, r.Path) }

// metricValue is the value that a level shows, and whether it shows an empty one.
func (l *level) metricValue(sent string, detailed bool) (value string, always bool) {
	switch {
	case l.shared:
		return l.value, false
	case detailed:
		return sent, true
	case l.perValue && (l.value == "" || l.several):
		return sent, false
	}
	return l.value, false
}

// pathBuilder writes a path and notes where its first levels begin.
type pathBuilder struct {
	text   strings.Builder
	levels int
	starts [3]int
}

func newPathBuilder(domain string) *pathBuilder {
	b := &pathBuilder{}
	b.text.WriteString(domain)
	return b
}

// level adds a level, with a value unless that is empty and not always shown.
func (b *pathBuilder) level(key, value string, always bool) {
	b.text.WriteByte('.')
	if b.levels < len(b.starts) {
		b.starts[b.levels] = b.text.Len()
	}
	b.levels++
	b.text.WriteString(key)
	if value != "" || always {
		b.text.WriteByte('_')
		b.text.WriteString(value)
	}
}

func (b *pathBuilder) path(suffix string) MetricPath {
	b.text.WriteString(suffix)
	p := MetricPath{Path: b.text.String()}
	for i := range min(b.levels, len(p.Keys)) {
		end := len(p.Path)
		if i+1 < b.levels {
			end = b.starts[i+1] - len(".")
		}
		p.Keys[i] = p.Path[b.starts[i]:end]
	}
	return p
}
