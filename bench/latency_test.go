package main

import (
	"math"
	"testing"
	"time"
)

func TestPercentilesAreOfTheNearestRank(t *testing.T) {
	latencies := new(Latencies)
	for i := 1; i <= 100; i++ {
		latencies.Record(time.Duration(i))
	}
	for percent, want := range map[float64]time.Duration{0: 1, 1: 1, 50: 50, 90: 90, 99: 99, 99.5: 100, 100: 100} {
		if got := latencies.Percentile(percent); got != want {
			t.Errorf("p%v = %d, want %d", percent, got, want)
		}
	}
}

func TestAPercentileIsAtMostOnePartIn128TooHigh(t *testing.T) {
	for d := time.Duration(1); d > 0 && d < math.MaxInt64/3; d = d*3 + 1 {
		latencies := new(Latencies)
		latencies.Record(d)
		latencies.Record(math.MaxInt64)
		got := latencies.Percentile(50)
		if got < d || float64(got-d) > float64(d)/128 {
			t.Errorf("median of %d and more = %d", d, got)
		}
	}
}

func TestTheMaximumIsExact(t *testing.T) {
	latencies, other := new(Latencies), new(Latencies)
	latencies.Record(time.Millisecond)
	other.Record(1_234_567_891)
	latencies.Merge(other)
	if got := latencies.Percentile(100); got != 1_234_567_891 {
		t.Errorf("p100 = %d", got)
	}
	if got := latencies.Percentile(50); got.Round(20*time.Microsecond) != time.Millisecond {
		t.Errorf("p50 = %v", got)
	}
}

func TestNoLatenciesHaveNoPercentile(t *testing.T) {
	if got := new(Latencies).Percentile(99); got != 0 {
		t.Errorf("p99 of nothing = %v", got)
	}
}

func TestALatencyBelowZeroCountsAsZero(t *testing.T) {
	latencies := new(Latencies)
	latencies.Record(-time.Second)
	if got := latencies.Percentile(100); got != 0 {
		t.Errorf("p100 = %v", got)
	}
}
