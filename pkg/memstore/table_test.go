package memstore

import (
	"fmt"
	"maps"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// TestATableIsAMap holds a table against Go's map, with hashes of which many are alike.
func TestATableIsAMap(t *testing.T) {
	limit := &limiter.Limit{Requests: 1}
	rapid.Check(t, func(t *rapid.T) {
		hashes := uint32(rapid.SampledFrom([]int{1, 3, 1 << 16}).Draw(t, "hashes"))
		hashOf := func(key string) (h uint32) {
			for i := range len(key) {
				h = h*31 + uint32(key[i])
			}
			return h % hashes * (math.MaxUint32 / hashes)
		}
		var tab table
		want := map[string][]int64{}
		for range rapid.IntRange(0, 600).Draw(t, "steps") {
			key := fmt.Sprint(rapid.IntRange(0, 300).Draw(t, "key"))
			log := []int64{1, 2, 3}[:rapid.IntRange(0, 3).Draw(t, "log")]
			i := tab.find(hashOf(key), key)
			if _, there := want[key]; there != (i >= 0) {
				t.Fatalf("%s is there: %t, found at %d", key, there, i)
			}
			switch {
			case i >= 0 && rapid.Bool().Draw(t, "remove"):
				tab.remove(i, hashOf)
				delete(want, key)
				continue
			case i >= 0:
				tab.set(tab.at(i), &limiter.Row{Log: log}, limit, 1)
			default:
				tab.set(tab.add(hashOf(key), key), &limiter.Row{Log: log}, limit, 1)
			}
			want[key] = log
		}
		got := map[string][]int64{}
		for i := range tab.count {
			got[tab.at(i).key] = tab.row(tab.at(i)).Log
		}
		if !maps.EqualFunc(got, want, func(a, b []int64) bool { return fmt.Sprint(a) == fmt.Sprint(b) }) {
			t.Fatalf("\n got %v\nwant %v", got, want)
		}
	})
}
