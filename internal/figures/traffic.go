package main

import (
	"math/rand/v2"
	"slices"
)

// The simulation's limit is 100 hits in a second. Instants are in µs since the Unix epoch.
const (
	limit   = 100
	window  = 1_000_000
	windows = 600
	start   = 1_800_000_000 * window
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

// random is a Poisson process: as many hits as it has on average, each at an instant of its own. Whole numbers
// are the same on every machine.
func random(r *rand.Rand, perWindow int) []int64 {
	hits := make([]int64, perWindow*windows)
	for i := range hits {
		hits[i] = start + r.Int64N(windows*window)
	}
	slices.Sort(hits)
	return hits
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
// a window. It rests until nothing of that counts.
func attack(*rand.Rand) []int64 {
	var hits []int64
	for edge := int64(start + 4*window); edge < start+windows*window; edge += 4 * window {
		hits = append(hits, flood(edge, edge+window)...)
	}
	return hits
}

// flood is a hit each ten thousandth of a window from shortly before an edge.
func flood(edge, until int64) []int64 {
	var hits []int64
	for at := edge - window/100; at < until; at += window / 10_000 {
		hits = append(hits, at)
	}
	return hits
}
