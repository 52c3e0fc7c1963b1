// Package storetest is what every limiter.Store must pass: scripts with the decisions they expect, agreement
// with limiter.Decide on random batches, relations between decisions, and exact counts under concurrency. A new
// store passes it by
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t *testing.T, c *storetest.Clock) limiter.Store { … })
//	}
package storetest

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// Open returns an empty store that goes by the clock, or by its own if the clock is nil. What it needs to
// clean up it registers with t.
type Open func(t *testing.T, c *Clock) limiter.Store

// Clock is a time that tests set. Stores may read it at any time.
type Clock struct {
	micros atomic.Int64
}

// Now is the clock's time.
func (c *Clock) Now() time.Time { return time.UnixMicro(c.micros.Load()) }

// Micros is the clock's time in µs since the Unix epoch.
func (c *Clock) Micros() int64 { return c.micros.Load() }

// Set puts the clock to t, forward or back.
func (c *Clock) Set(t time.Time) { c.micros.Store(t.UnixMicro()) }

// Advance puts the clock d ahead, or back if d is negative.
func (c *Clock) Advance(d time.Duration) { c.micros.Add(d.Microseconds()) }

// Run runs the suite.
func Run(t *testing.T, open Open) {
	t.Run("scripts", func(t *testing.T) { runScripts(t, open) })
	t.Run("agrees with limiter.Decide on random batches", func(t *testing.T) { agrees(t, open) })
	t.Run("decides changed traffic alike", func(t *testing.T) { relations(t, open) })
	t.Run("counts late hits that come at once one by one", func(t *testing.T) { lateHits(t, open) })
	RunWithoutClock(t, open)
}

// RunWithoutClock runs the part of the suite for which stores go by their own clocks, and that is about verdicts and
// counts only: a store that answers for another one from memory passes it, too.
func RunWithoutClock(t *testing.T, open Open) {
	t.Run("admits exactly the limit under concurrency", func(t *testing.T) { exact(t, open) })
	t.Run("takes all or nothing under concurrency", func(t *testing.T) { allOrNothing(t, open) })
	t.Run("keeps no name that a caller reuses", func(t *testing.T) { reusedNames(t, open) })
}
