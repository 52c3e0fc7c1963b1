package redisstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

func TestTagsAreSpreadEvenlyOverAClustersSlots(t *testing.T) {
	r := proctest.StartRedis(t, "--cluster-enabled", "yes", "--cluster-port", fmt.Sprint(proctest.FreePort(t)))
	for _, n := range []int{1, 2, 16, 64} {
		slots := make([]int, 0, n)
		for _, prefix := range prefixes("p:", n) {
			slot, err := r.Client().ClusterKeySlot(context.Background(), prefix+"name").Result()
			if err != nil {
				t.Fatal(err)
			}
			tag := strings.TrimSuffix(strings.TrimPrefix(prefix, "p:v1:{"), "}")
			if int(slot) != slotOf(tag) {
				t.Errorf("tag %s is in slot %d, not %d", tag, slot, slotOf(tag))
			}
			slots = append(slots, int(slot))
		}
		if !slices.IsSorted(slots) {
			t.Errorf("the slots of %d tags are %v", n, slots)
		}
		share := clusterSlots / n
		for i := 1; i < n; i++ {
			if gap := slots[i] - slots[i-1]; gap < share*9/10 || gap > share*11/10 {
				t.Errorf("slots %d and %d are %d apart, want about %d", slots[i-1], slots[i], gap, share)
			}
		}
	}
}

func TestCountersOfOnePartitionShareATag(t *testing.T) {
	s := &server{prefixes: prefixes("", 16)}
	seen := map[int]bool{}
	for _, key := range strings.Fields("a b c d e f g h i j k l m n o p q r s t u v w x y z") {
		seen[s.tagOf(&limiter.Hit{Key: key})] = true
		together := s.tagOf(&limiter.Hit{Key: key, Partition: "acme"})
		if together != s.tagOf(&limiter.Hit{Key: "other", Partition: "acme"}) {
			t.Errorf("counter %s of a partition is elsewhere", key)
		}
	}
	if len(seen) < 8 {
		t.Errorf("26 counters are under %d tags of 16", len(seen))
	}
}

func TestCountersAreLocatedByLane(t *testing.T) {
	for address, several := range map[string]bool{"redis://127.0.0.1:1": false, "redis+cluster://127.0.0.1:1": true} {
		s, err := Open(Options{Address: address, Prefix: "p:", HashTags: 4})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close() }()
		lanes := map[string]bool{}
		for i := range 100 {
			h := &limiter.Hit{Key: fmt.Sprint("counter-", i), Limit: threePerDay}
			lane, key := s.Locate(h)
			lanes[lane] = true
			if key != s.prefixOf(h)+h.Key || !strings.HasPrefix(key, "p:v1:{") {
				t.Errorf("the key is %s", key)
			}
			h.Partition = "acme"
			if lane, _ := s.Locate(h); several && lane == "" {
				t.Error("a partition is nowhere")
			}
		}
		if len(lanes) == 4 != several {
			t.Errorf("%s: the lanes are %v", address, lanes)
		}
	}
}
