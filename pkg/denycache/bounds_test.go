package denycache_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/envoy-rls/envoy-rls/pkg/denycache"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

func aliased(b []byte) string { return unsafe.String(&b[0], len(b)) }

// TestMemoryIsBounded remembers far more denials than there is room for, under short and long names.
func TestMemoryIsBounded(t *testing.T) {
	const size = 2 << 20
	for _, length := range []int{8, 100, 700, 5000} {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		p := newPair(t, denycache.Options{Size: size})
		name := strings.Repeat("n", length)
		denied := func(i int) limiter.Hit {
			return limiter.Hit{Key: fmt.Sprint(name, i), Limit: &limiter.Limit{Period: time.Hour}, Cost: 1, Charge: limiter.Together}
		}
		for i := range 20_000 {
			p.decide(denied(i))
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		grown := int(after.HeapAlloc) - int(before.HeapAlloc)
		t.Logf("%d names of %d bytes take %d", p.cache.Len(), length, grown)
		if grown > size*11/10 {
			t.Errorf("names of %d bytes take %d, want at most %d", length, grown, size)
		}
		if length < 1000 {
			p.remembers(denied(19_999))
		}
		runtime.KeepAlive(p)
	}
}

func TestDenialsThatNoLongerHoldMakeRoomFirst(t *testing.T) {
	p := newPair(t, denycache.Options{MaxAge: time.Minute, Size: denycache.MinSize})
	denied := func(name string, i int, period time.Duration) limiter.Hit {
		return limiter.Hit{Key: fmt.Sprint(name, i), Limit: &limiter.Limit{Period: period}, Cost: 1, Charge: limiter.Together}
	}
	for i := range 10_000 {
		p.decide(denied("old", i, time.Second))
	}
	p.clock.Advance(time.Second)
	for i := range 200 {
		p.decide(denied("new", i, time.Hour))
	}
	kept := p.cache.Answers().Whole
	for i := range 200 {
		p.decide(denied("new", i, time.Hour))
	}
	if kept = p.cache.Answers().Whole - kept; kept != 200 {
		t.Errorf("%d of 200 are remembered among many that no longer hold", kept)
	}
}

func TestAnAnswerFromMemoryAllocatesNothing(t *testing.T) {
	for _, uncounted := range []bool{false, true} {
		p := newPair(t, denycache.Options{Uncounted: uncounted})
		b := batchOf(hit("a", 1), hit("b", 1), hit("c", 1))
		for i := range b.Hits {
			b.Hits[i].Group = uint16(i)
			p.decide(hit(b.Hits[i].Key, 3))
		}
		p.decide(hit("a", 2))
		p.decide(hit("b", 2))
		p.decide(hit("c", 2))
		for _, h := range b.Hits {
			p.decide(h)
		}
		before := p.cache.Answers().Whole
		allocated := testing.AllocsPerRun(100, func() {
			if err := p.cache.Decide(context.Background(), b); err != nil || b.Allowed {
				t.Fatal(err, b.Allowed)
			}
		})
		if answered := p.cache.Answers().Whole - before; allocated != 0 || answered != 101 {
			t.Errorf("uncounted %t: %d answers from memory allocate %.0f times each", uncounted, answered, allocated)
		}
	}
}
