package descriptors

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// AppendReplacedName appends the name that envoyproxy/ratelimit gives the counter for the window that now is in, under a
// limit of a period, to dst: "shop_user_ann_path_/a_1796007600".
//
// Nothing in it is escaped, and there is neither the unit nor the rule, so that different counters can have one name; nor is
// there an end to its length. The counter of values that are too many, of which that service knows nothing, has ! and the
// rule's path in place of entries.
func (c Counter) AppendReplacedName(dst []byte, period time.Duration, now time.Time) []byte {
	dst = append(append(dst, c.Domain...), '_')
	if c.Overflow {
		dst = append(append(append(dst, '!'), c.Rule.Path...), '_')
	} else {
		for i, e := range c.Entries {
			dst = append(append(dst, e.Key...), '_')
			if pattern := c.pattern(i); pattern != "" {
				e.Value = pattern
			}
			dst = append(append(dst, e.Value...), '_')
		}
	}
	seconds := now.Unix()
	return strconv.AppendInt(dst, seconds-seconds%int64(period/time.Second), 10)
}

// NameAsReplaced makes l a limiter.NamedWindow if envoyproxy/ratelimit has such limits, which are fixed windows of one unit,
// and tells whether it has.
func (l *Limit) NameAsReplaced() bool {
	if l.Algorithm == limiter.NamedWindow { // as the limit that l was made from
		l.Algorithm = limiter.FixedWindow
	}
	if l.Algorithm != limiter.FixedWindow || l.Multiplier != 1 {
		return false
	}
	l.Algorithm = limiter.NamedWindow
	return true
}

// namedRule is a rule with a limit that is a limiter.NamedWindow.
type namedRule struct {
	at   *yaml.Node
	path string
	name string // of its counters, but for windows, with a line's end for each value that is the client's
	unit Unit
}

// nameAsReplaced has a limit of r counted under the name of the replaced service. Of several, which that service doesn't
// have, it is the first that can be: two of them would be one counter where their windows begin together.
func (c *compiler) nameAsReplaced(r *Rule, s *descriptorSpec) {
	i := 0
	for i < len(r.Limits) && !r.Limits[i].NameAsReplaced() {
		i++
	}
	if i == len(r.Limits) {
		return
	}
	var name strings.Builder
	for _, l := range r.levels {
		value := l.value
		if value == "" {
			value = "\n" // which no key and no value holds
		}
		name.WriteString(l.key + "_" + value + "_")
	}
	c.named = append(c.named, namedRule{s.at, s.path, name.String(), r.Limits[i].Unit})
}

// doubtNames warns of rules whose counters have one name whatever clients send. That clients can choose values by which
// they have is not for a file to mend.
func (c *compiler) doubtNames() {
	first := map[string]*namedRule{}
	for i := range c.named {
		n := &c.named[i]
		other := first[n.name]
		if other == nil {
			first[n.name] = n
			continue
		}
		when := ""
		if n.unit != other.unit {
			when = " where windows of both begin together"
		}
		c.report(Warning, n.at, n.path, fmt.Sprintf("in the key format of the replaced service it has the counter of %s (%d:%d)%s; "+
			"rename a key, or keep the format of this service", other.path, other.at.Line, other.at.Column, when))
	}
}
