package main

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
	"github.com/envoy-rls/envoy-rls/pkg/redisstore"
)

// TestReplicasThatKeepOldRulesAreCounted has two replicas over a Redis, with a clock of the test's own.
func TestReplicasThatKeepOldRulesAreCounted(t *testing.T) {
	r := proctest.StartRedis(t)
	now := time.Now()
	rules := [2]string{"old", "old"}
	var replicas [2]*census
	for i := range replicas {
		store, err := redisstore.Open(redisstore.Options{Address: r.Addr})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		replicas[i] = newCensus(&settings{}, store, func() string { return rules[i] })
		replicas[i].now = func() time.Time { return now }
	}
	for _, step := range []struct {
		rules [2]string
		later time.Duration
		drift int64
	}{
		{[2]string{"old", "old"}, 0, 0},
		{[2]string{"new", "old"}, 0, 0},
		{[2]string{"new", "old"}, time.Minute, 0},
		{[2]string{"new", "old"}, time.Second, 1},
		{[2]string{"new", ""}, time.Second, 0}, // a replica that has just begun, or of a version that doesn't tell
		{[2]string{"new", "old"}, time.Second, 0},
		{[2]string{"newer", "old"}, time.Minute, 0}, // to the one it has differed since a step ago, to the other as well
		{[2]string{"newer", "old"}, 2 * time.Second, 1},
		{[2]string{"newer", "newer"}, time.Second, 0},
	} {
		rules = step.rules
		now = now.Add(step.later)
		proctest.Eventually(t, fmt.Sprintf("after %v both know of each other, and how many drift", step), func() bool {
			for _, i := range []int{0, 1, 0} { // the first has heard of the other's present rules by then
				replicas[i].update(t.Context())
			}
			return !slices.ContainsFunc(replicas[:], func(c *census) bool { return c.drift.count() != step.drift || c.count() != 2 })
		})
	}
}
