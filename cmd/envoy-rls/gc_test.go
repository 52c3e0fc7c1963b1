package main

import (
	"math"
	"runtime/debug"
	"testing"
)

func TestTheCollectorIsSetByTheMemoryThatThereIs(t *testing.T) {
	percent, limit := debug.SetGCPercent(100), debug.SetMemoryLimit(-1)
	defer func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	}()
	for _, c := range []struct {
		limit int64
		gogc  string
		want  int
	}{
		{300 << 20, "", gcPercentWithLimit},
		{300 << 20, "70", 100},
	} {
		debug.SetGCPercent(100)
		debug.SetMemoryLimit(c.limit)
		t.Setenv("GOGC", c.gogc)
		tuneGC(1 << 20)
		if got := debug.SetGCPercent(100); got != c.want {
			t.Errorf("limit %d, GOGC %q: %d %%, want %d", c.limit, c.gogc, got, c.want)
		}
	}
	debug.SetMemoryLimit(math.MaxInt64)
	tuneGC(1 << 20)
	if got := debug.SetMemoryLimit(-1); got == math.MaxInt64 {
		t.Error("without a limit there is none")
	}
}
