package main

import (
	"math"
	"os"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// How far the heap may grow beyond what lives before it is collected, in percent. What lives is small and a
// request's garbage is not, so collecting seldom is cheaper; a memory limit keeps that from being too seldom.
const (
	gcPercentWithLimit = 800
	gcPercentWithout   = 200
)

// tuneGC sets the garbage collector by the memory that there is: the limit in GOMEMLIMIT, or nine tenths of the
// control group's, or if there is none, what keeps counters of the given size clear of it. GOGC, where it is
// set, stays. ofGroup knows the control group's limit.
func tuneGC(counters int64, ofGroup memlimit.Provider) {
	percent := gcPercentWithLimit
	limit := debug.SetMemoryLimit(-1)
	if limit == math.MaxInt64 {
		if group, err := ofGroup(); err == nil && group > 0 && group < math.MaxInt64 {
			limit = int64(group / 10 * 9)
		} else {
			percent, limit = gcPercentWithout, 1<<30+2*counters
		}
		debug.SetMemoryLimit(limit)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}
