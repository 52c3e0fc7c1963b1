package top

import (
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// enough is how many calls of a kind are looked at in a second; of more, some.
const enough = 1000

// maxEvery bounds of how many calls one is looked at.
const maxEvery = 1 << 20

// sampler picks calls by chance: all while they are few, and of any number about as many as are enough.
type sampler struct {
	every atomic.Uint32 // of so many one is picked; a power of two, or 0 for 1

	second int64 // the present one
	taken  int   // in it, since every last changed
}

// weight is for how many calls this one stands if it is picked, else 0. Any number of goroutines may call it.
func (s *sampler) weight() int64 {
	every := s.every.Load()
	if every > 1 && rand.Uint32()&(every-1) != 0 {
		return 0
	}
	return max(int64(every), 1)
}

// took notes a call that was picked, at a time since the beginning: too many in a second have fewer picked from then on, few
// have more. It is for one goroutine at a time.
func (s *sampler) took(at time.Duration) {
	every := max(s.every.Load(), 1)
	if second := int64(at / time.Second); second > s.second {
		if s.taken < enough/4 {
			every = max(every>>min(second-s.second, 31), 1)
		}
		s.second, s.taken = second, 0
	}
	s.taken++
	if s.taken > enough && every < maxEvery {
		every, s.taken = 2*every, 0
	}
	s.every.Store(every)
}
