package main

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/envoy-rls/envoy-rls/internal/simulate"
)

// The limit is 100 hits in a second. Instants are in µs since the Unix epoch.
const (
	limit   = 100
	window  = 1_000_000
	windows = 100
	start   = simulate.Begin
)

// pattern is a kind of traffic: the instants of its hits, in order.
type pattern struct {
	name string
	hits func(r *rand.Rand) []int64
}

var patterns = []pattern{
	{"random, 0.8 L per W", func(r *rand.Rand) []int64 { return random(r, 80) }},
	{"random, 1.2 L per W", func(r *rand.Rand) []int64 { return random(r, 120) }},
	{"random, 3 L per W", func(r *rand.Rand) []int64 { return random(r, 300) }},
	{"bursts of 1.5 L", bursts},
	{"attack on window edges", attack},
}

// random is as many hits as it has per window on average, at instants that have nothing to do with each other.
func random(r *rand.Rand, perWindow float64) []int64 {
	g := simulate.Generator{Shape: simulate.Steady, Rate: perWindow, For: windows * time.Second}
	return slices.Collect(g.Instants(r))
}

// bursts are 150 hits within 20 ms, each 1.5 windows after the one before on average.
func bursts(r *rand.Rand) []int64 {
	var hits []int64
	for at := int64(start); at < start+windows*window; at += r.Int64N(3 * window) {
		for range 150 {
			hits = append(hits, at+r.Int64N(20_000))
		}
	}
	slices.Sort(hits)
	return hits
}

// attack begins a hundredth of a window before an edge, with just enough hits to use a limit up, and goes on for
// a window. It rests until nothing of that counts. All attacks are alike, so a few are enough.
func attack(r *rand.Rand) []int64 {
	g := simulate.Generator{Shape: simulate.BoundaryBurst, Rate: 100 * limit, For: windows * time.Second / 10, Window: time.Second}
	return slices.Collect(g.Instants(r))
}

// flood is a hit each ten thousandth of a window from shortly before an edge.
func flood(edge, until int64) []int64 {
	var hits []int64
	for at := edge - window/100; at < until; at += window / 10_000 {
		hits = append(hits, at)
	}
	return hits
}
