package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// newerBuild is a version that writes an instant behind the rows of sliding windows and buckets.
func newerBuild(t *testing.T) string {
	t.Helper()
	files := map[string]string{}
	for name, change := range map[string][2]string{
		"lua/kernel_1_sliding_window.lua": {"'%d:%d:%d', row.a, row.b, row.c", "'%d:%d:%d;%d', row.a, row.b, row.c, now"},
		"lua/kernel_3_token_bucket.lua":   {"'%d:%d', row.a, row.b", "'%d:%d;%d', row.a, row.b, now"},
	} {
		text, err := os.ReadFile(filepath.Join(proctest.Root(), name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = strings.Replace(string(text), change[0], change[1], 1)
		if files[name] == string(text) {
			t.Fatalf("%s has no %s", name, change[0])
		}
	}
	return proctest.BuildWith(t, files)
}

// TestTwoVersionsWithDifferentRowsShareCounters has a newer version come, work beside the present one, and go again.
func TestTwoVersionsWithDifferentRowsShareCounters(t *testing.T) {
	redis := proctest.StartRedis(t)
	present := startServices(t, 1, "--redis="+redis.URL())[0]
	newer := proctest.StartBinary(t, newerBuild(t), "--rules="+writeRules(t), "--store-timeout=5s", "--redis="+redis.URL())
	onlyPresent, onlyNewer, both := newLoad(t, present), newLoad(t, newer), newLoad(t, present, newer)
	algorithms := []string{"sliding_window", "token_bucket", "leaky_bucket"}
	for _, algorithm := range algorithms {
		onlyNewer.admitsExactly(20, 20, shopRequest(algorithm))
		rowsAre(t, redis, algorithm, true)
		onlyPresent.admitsExactly(20, 20, shopRequest(algorithm))
		rowsAre(t, redis, algorithm, false)
		both.admitsExactly(60, 2000, shopRequest(algorithm))
		both.left(map[string]uint32{algorithm: 0})
	}
	// What the two versions write alike.
	both.admitsExactly(100, 2000, shopRequest("fixed_window"))
	both.admitsExactly(100, 2000, shopRequest("sliding_log"))
	both.tells(len(algorithms)*2040 + 4000)
	newer.End()
	for _, algorithm := range append(algorithms, "fixed_window", "sliding_log") {
		onlyPresent.admitsExactly(0, 100, shopRequest(algorithm))
	}
}

// rowsAre checks which version has written the row of an algorithm's counter.
func rowsAre(t *testing.T, redis *proctest.Redis, algorithm string, newer bool) {
	t.Helper()
	keys, err := redis.Client().Keys(t.Context(), "*/"+algorithm+"*").Result()
	if err != nil || len(keys) != 1 {
		t.Fatalf("%s has the keys %q, %v", algorithm, keys, err)
	}
	row, err := redis.Client().Get(t.Context(), keys[0]).Result()
	if err != nil || strings.Contains(row, ";") != newer {
		t.Errorf("the row of %s is %q, %v", algorithm, row, err)
	}
}
