package redisstore

import (
	"fmt"
	"hash/fnv"

	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

const (
	// keyVersion stands between the prefix and a counter's name. Another one would count anew: rows change as
	// lua/README.md says.
	keyVersion = "v1"
	// clusterSlots is the number of hash slots of a Redis Cluster.
	clusterSlots = 16384
	// maxTags bounds the search for tags.
	maxTags = 1024
)

// prefixes start the names of keys: each has a tag in braces, which alone says in which slot of a cluster a
// key is. All counters of a tag can be decided by one script, and the slots of n tags lie evenly between
// those that there are, so that every node of a cluster gets its share.
func prefixes(prefix string, n int) []string {
	n = min(max(n, 1), maxTags)
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("%s%s:{%s}", prefix, keyVersion, tagNear((2*i+1)*clusterSlots/(2*n), n))
	}
	return list
}

// tagNear is the first number, in hex, whose slot is no further from a slot than a hundredth of what n tags
// share out.
func tagNear(slot, n int) string {
	near := clusterSlots / n / 100
	for i := 0; ; i++ {
		tag := fmt.Sprintf("%x", i)
		if d := slotOf(tag) - slot; n == 1 || d >= -near && d <= near {
			return tag
		}
	}
}

// slotOf is the hash slot of a tag, by CRC16-XMODEM as the Redis Cluster specification has it.
func slotOf(tag string) int {
	crc := uint16(0)
	for i := range len(tag) {
		crc ^= uint16(tag[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc) % clusterSlots
}

// prefixOf is what the key of h begins with. That of a named window is another service's, too, which knows of no tags.
func (s *server) prefixOf(h *limiter.Hit) string {
	if h.Limit.Algorithm == limiter.NamedWindow {
		return s.untagged
	}
	return s.prefixes[s.tagOf(h)]
}

// Locate says where the counter of h is: its key, and the lane that decides it, which is "" unless there are several.
func (s *Store) Locate(h *limiter.Hit) (lane, key string) {
	if s.parts != nil {
		lane = s.lanes[s.tagOf(h)].name
	}
	return lane, s.prefixOf(h) + h.Key
}

// tagOf is the number of h's tag. Hits of one partition have the same, others one by their name.
func (s *server) tagOf(h *limiter.Hit) int {
	if len(s.prefixes) == 1 {
		return 0
	}
	hash := fnv.New32a()
	if h.Partition != "" {
		_, _ = hash.Write([]byte(h.Partition)) // a hash takes everything
	} else {
		_, _ = hash.Write([]byte(h.Key))
	}
	return int(hash.Sum32()) % len(s.prefixes)
}
