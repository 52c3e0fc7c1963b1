package descriptors

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// maxPlainName is the longest counter name, but for algorithm and period, that is kept as it is.
const maxPlainName = 128

// Entry is one key and value of a request's descriptor.
type Entry struct {
	Key, Value string
}

// Counter is what a descriptor is counted as.
type Counter struct {
	Domain  string
	Entries []Entry
	// Rule is what the entries matched, or nil: a descriptor that no rule matches, of any domain, is counted
	// too if its request brings a limit along.
	Rule *Rule
	// Overflow makes it the one counter that the values share which are too many for counters of their own.
	Overflow bool
}

// AppendName appends the name of the counter under limit l, which need not be a limit of the rule, to dst.
//
// The name is the domain and each entry as key and value, every part behind its own length, then the
// algorithm and period: "4:demo4:user=3:ann/fixed_window60". Where a rule lets all values that a pattern
// matches share one counter, "~" and the pattern stand for "=" and the value. So no two different inputs have
// one name, whatever a client puts into a header: a reader from the left knows at each byte what it looks at.
// The name holds no limit, so an edit of requests_per_unit keeps the count. The counter that a rule's
// overflowing values share has ! and the rule's path in place of entries. What would be longer than
// maxPlainName is replaced by 128 bits of its SHA-256 behind #, where other names start with a digit.
func (c Counter) AppendName(dst []byte, l *limiter.Limit) []byte {
	return AppendLimit(c.AppendValues(dst), l)
}

// AppendLimit appends the end of a counter's name, which tells the limits of a descriptor apart.
func AppendLimit(dst []byte, l *limiter.Limit) []byte {
	dst = append(append(dst, '/'), l.Algorithm.String()...)
	return strconv.AppendInt(dst, int64(l.Period/time.Second), 10)
}

// AppendValues appends what the names of all counters of the descriptor begin with.
func (c Counter) AppendValues(dst []byte) []byte {
	start := len(dst)
	dst = appendPart(dst, c.Domain)
	if c.Overflow {
		dst = appendPart(append(dst, '!'), c.Rule.Path)
	} else {
		dst = c.appendEntries(dst)
	}
	if len(dst)-start > maxPlainName {
		sum := sha256.Sum256(dst[start:])
		dst = hex.AppendEncode(append(dst[:start], '#'), sum[:16])
	}
	return dst
}

func (c Counter) appendEntries(dst []byte) []byte {
	for i, e := range c.Entries {
		dst = appendPart(dst, e.Key)
		if pattern := c.pattern(i); pattern != "" {
			dst = appendPart(append(dst, '~'), pattern)
		} else {
			dst = appendPart(append(dst, '='), e.Value)
		}
	}
	return dst
}

// pattern is what stands in for the value of entry i, or "".
func (c Counter) pattern(i int) string {
	if c.Rule == nil || i >= len(c.Rule.patterns) {
		return ""
	}
	return c.Rule.patterns[i]
}

func appendPart(dst []byte, s string) []byte {
	dst = strconv.AppendInt(dst, int64(len(s)), 10)
	return append(append(dst, ':'), s...)
}
