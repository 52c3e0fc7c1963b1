package descriptors

import "strings"

// level is a descriptor on the way to a rule, as metrics tell of it.
type level struct {
	key, value string // as in the file; value is "" for any
	several    bool   // it matches more than one value
	perValue   bool   // value_to_metric
	shared     bool   // share_threshold
}

// PerValue tells whether metrics tell the values of r apart: whether MetricPath differs from Path.
func (r *Rule) PerValue() bool { return r.perValue }

// MetricPath is the path of a descriptor matched by r, with the values that value_to_metric and detailed_metric
// ask for in it, as the service that this one replaces names them. It may hold anything that a client sends.
func (r *Rule) MetricPath(entries []Entry) string {
	var b strings.Builder
	b.WriteString(r.Domain)
	for i := range r.levels {
		l := &r.levels[i]
		b.WriteByte('.')
		b.WriteString(l.key)
		value, always := l.metricValue(entries[i].Value, r.detailed)
		if value != "" || always {
			b.WriteByte('_')
			b.WriteString(value)
		}
	}
	return b.String()
}

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
