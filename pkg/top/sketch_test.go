package top

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
)

// TestASketchCountsWhatOccursMost holds it to what the algorithm promises, for any order of any things.
func TestASketchCountsWhatOccursMost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 8).Draw(t, "size")
		s := newSketch(size)
		if rapid.Bool().Draw(t, "used before") {
			for i := range 20 {
				s.add(uint64(i), 3)
			}
			s.reset()
		}
		truth, all := map[uint64]int64{}, int64(0)
		for _, hash := range rapid.SliceOf(rapid.Uint64Range(0, 20)).Draw(t, "stream") {
			weight := int64(1 + hash%3)
			truth[hash] += weight
			all += weight
			if l := s.add(hash, weight); l != nil {
				l.write("rule", false, []descriptors.Entry{{Key: "k", Value: string(rune('a' + hash))}})
			}
		}
		kept := map[uint64]bool{}
		for i := range s.slots[:s.used] {
			slot := &s.slots[i]
			kept[slot.hash] = true
			if n := truth[slot.hash]; slot.count < n || slot.count-slot.over > n {
				t.Fatalf("%d occurred %d times, and is counted as %d, of which %d may be too many", slot.hash, n, slot.count, slot.over)
			}
			if e := slot.what.entries(); e[0].Value != string(rune('a'+slot.hash)) {
				t.Fatalf("%d is called %v", slot.hash, e)
			}
		}
		for hash, n := range truth {
			if n > all/int64(size) && !kept[hash] {
				t.Fatalf("%d occurred %d times of %d, and is not among %d", hash, n, all, size)
			}
		}
	})
}
