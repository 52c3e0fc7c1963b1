package main

import (
	"math"
	"math/bits"
	"time"
)

// cellBits sets the histogram's precision: 2^cellBits cells for each power of two, so that a percentile is at most
// 1/128 above the true one.
const cellBits = 7

// Latencies is a histogram of durations with a bounded size and relative error. The zero value is empty and ready.
// It is one goroutine's; Merge joins those of many.
type Latencies struct {
	cells [(64 - cellBits + 1) << cellBits]uint64
	count uint64
	max   time.Duration
}

// Record adds one duration. A negative one counts as zero.
func (l *Latencies) Record(d time.Duration) {
	d = max(d, 0)
	l.cells[cellOf(d)]++
	l.count++
	l.max = max(l.max, d)
}

// Merge adds all that other recorded.
func (l *Latencies) Merge(other *Latencies) {
	for i, n := range other.cells {
		l.cells[i] += n
	}
	l.count += other.count
	l.max = max(l.max, other.max)
}

// Percentile gives the duration that p percent of those recorded do not exceed (the nearest rank), 0 if there are none.
func (l *Latencies) Percentile(p float64) time.Duration {
	rank := max(1, uint64(math.Ceil(p/100*float64(l.count))))
	var seen uint64
	for i, n := range l.cells {
		if seen += n; seen >= rank {
			return min(ceilingOf(i), l.max)
		}
	}
	return l.max
}

// cellOf gives the cell that d falls into: exact up to 2^(cellBits+1) ns, then its leading cellBits+1 bits.
func cellOf(d time.Duration) int {
	shift := max(0, bits.Len64(uint64(d))-cellBits-1)
	return shift<<cellBits + int(uint64(d)>>shift)
}

// ceilingOf gives the longest duration of a cell.
func ceilingOf(cell int) time.Duration {
	shift := max(0, cell>>cellBits-1)
	return time.Duration((cell-shift<<cellBits+1)<<shift - 1)
}
