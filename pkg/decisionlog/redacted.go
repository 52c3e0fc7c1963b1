package decisionlog

import (
	"strings"

	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

// What a line tells of a request at most: its texts are what clients choose, and of any length. Texts are in bytes.
const (
	maxDescriptors = 8
	maxEntries     = 16
	maxText        = 128
	maxDomain      = 128
)

// descriptors are the request's, each as key=value,key=value.
func (l *Log) descriptors(o *rls.Outcome) []string {
	list := []string{}
	for entries := range o.Descriptors {
		if len(list) == maxDescriptors {
			return append(list, "…")
		}
		b := &strings.Builder{}
		for i, e := range entries {
			if i > 0 {
				b.WriteByte(',')
			}
			if i == maxEntries {
				b.WriteString("…")
				break
			}
			b.WriteString(cut(e.Key, maxText))
			b.WriteByte('=')
			b.WriteString(cut(l.options.Value(e.Value), maxText))
		}
		list = append(list, b.String())
	}
	return list
}

// cut is text, of which at most so many bytes are shown.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
