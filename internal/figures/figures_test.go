package main

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// measured is measure, once for all tests: it takes some seconds.
var measured = sync.OnceValues(measure)

func TestTheFiguresAreUpToDate(t *testing.T) {
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	results, err := measured()
	if err != nil {
		t.Fatal(err)
	}
	files, err := generate(root, results)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(root, name))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is out of date (%v): go generate ./internal/figures", name, err)
		}
	}
}

func TestNoTrafficGetsMoreThanIsPromised(t *testing.T) {
	all, err := measured()
	if err != nil {
		t.Fatal(err)
	}
	for p, results := range all {
		for i, r := range results {
			if c := contenders[i]; r.inWindow > c.promise {
				t.Errorf("%s under %s: %d in a window, and %d are promised", patterns[p].name, c.name, r.inWindow, c.promise)
			}
		}
	}
}

func TestTheFullestIntervalLeavesOutItsBeginning(t *testing.T) {
	hits := []int64{0, 5, 10, 12, 30}
	for _, c := range []struct {
		length      int64
		count, last int
	}{{1, 1, 0}, {5, 2, 3}, {10, 3, 3}, {13, 4, 3}, {31, 5, 4}} {
		if count, last := most(hits, c.length); count != c.count || last != c.last {
			t.Errorf("in an interval of %d there are %d hits up to %d, want %d up to %d", c.length, count, last, c.count, c.last)
		}
	}
}
