package descriptors

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

func TestDistinctAdmitsUpToTheMostAndWhatItHasSeen(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	for _, most := range []int{1, 100, 5000, 100_000} {
		d := newDistinct(int64(most), time.Hour)
		admitted := 0
		for i := range 2 * most {
			if d.admit(fmt.Appendf(nil, "value %d", i), now) {
				admitted++
			}
		}
		if admitted < most || admitted > most+most/1000+1 {
			t.Errorf("of %d values %d have counters, want about %d", 2*most, admitted, most)
		}
		for i := range most {
			if !d.admit(fmt.Appendf(nil, "value %d", i), now) {
				t.Fatalf("value %d of %d was seen, and is refused", i, most)
			}
		}
		if n := d.seen(); n < int64(most)*9/10 || n > int64(most) {
			t.Errorf("%d values were seen, it says %d", most, n)
		}
		if !d.admit([]byte("another"), now.Add(time.Hour)) {
			t.Error("a new period has no room")
		}
	}
}

func TestAFloodOfValuesBeyondTheMostHasHardlyAnyCounters(t *testing.T) {
	const most, flood = 20_000, 500_000
	d, now, more := newDistinct(most, time.Hour), time.Unix(1_800_000_000, 0), 0
	for i := range most + flood {
		if d.admit(fmt.Append(nil, i), now) && i >= most {
			more++
		}
	}
	if more > flood/5000 {
		t.Errorf("of %d values beyond the most %d have counters of their own", flood, more)
	}
}

func TestDistinctIsSmallWhileItHasSeenLittle(t *testing.T) {
	d := newDistinct(DefaultMaxValues, time.Hour)
	for i := range 500 {
		d.admit(fmt.Append(nil, i), time.Now())
	}
	if layers := *d.layers.Load(); len(layers) != 1 || len(layers[0].bits)*8 > 4000 {
		t.Errorf("%d layers, the first of %d words", len(layers), len(layers[0].bits))
	}
}

func TestDistinctIsForManyGoroutines(t *testing.T) {
	d := newDistinct(20_000, time.Hour)
	now := time.Unix(1_800_000_000, 0)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 5000 {
				if !d.admit(fmt.Append(nil, i), now.Add(time.Duration(g%2)*time.Hour)) {
					t.Error("there is room")
				}
			}
		})
	}
	wg.Wait()
}
