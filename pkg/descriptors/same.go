package descriptors

import (
	"fmt"
	"slices"
)

// mergeSame makes one descriptor of those that have one key and value, with what stands below all of them. Of
// several that have a limit, the first one's stays.
func (c *compiler) mergeSame(specs []*descriptorSpec) []*descriptorSpec {
	first := map[Entry]*descriptorSpec{}
	merged := make([]*descriptorSpec, 0, len(specs))
	for _, s := range specs {
		id := Entry{s.key, s.matched()}
		f := first[id]
		if f == nil {
			first[id] = s
			merged = append(merged, s)
			continue
		}
		children := slices.Concat(f.children, s.children)
		switch {
		case len(s.limits) == 0:
			c.warn(s, "there is more than one descriptor with this key and value, and they are made one")
		case len(f.limits) == 0:
			c.warn(s, "there is more than one descriptor with this key and value, and they are made one, with the limit of this one")
			*f = *s
		default:
			c.warn(s, "there is more than one descriptor with this key and value: the limit of the first stays, %s, and %s is not used",
				f.limits[0].words(), s.limits[0].words())
		}
		f.children = children
	}
	return merged
}

// words says how much.
func (s *limitSpec) words() string {
	if s.unlimited {
		return "no limit"
	}
	return fmt.Sprintf("%d per %s", s.limit.Requests, s.unit.Words(s.multiplier))
}
