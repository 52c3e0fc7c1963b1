// Package parts is a limiter.Store over several, each of which has some of the counters: the slots of a Redis Cluster,
// or a Redis of its own for limits per second. What a request takes in one place is given back if another denies it.
package parts

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// Store is a limiter.Store. Any number of goroutines may use it.
//
// A batch whose hits are all in one place is decided there at one instant. One that spans places is decided in each at
// once, and then set right: a hit that was charged in its place, and would not have been had the whole batch been there, is
// given back, in the window in which it was taken. So no limit admits more than it should; while requests are being
// denied, others may be denied that would have passed a moment later.
type Store struct {
	places  []limiter.Store
	placeOf func(h *limiter.Hit) int
	works   sync.Pool // of *work
}

// New returns a Store over places. placeOf says in which of them the counter of a hit is, always in the same; it may not
// keep the hit.
func New(places []limiter.Store, placeOf func(h *limiter.Hit) int) *Store {
	s := &Store{places: places, placeOf: placeOf}
	s.works.New = func() any { return s.newWork() }
	return s
}

func (s *Store) newWork() *work {
	return &work{batches: make([]limiter.Batch, len(s.places)), indexes: make([][]int, len(s.places))}
}

// work is what one call of Decide needs for a batch that spans places; it is pooled. By place:
type work struct {
	batches []limiter.Batch
	indexes [][]int // of the batches' hits in the whole one

	tried []bool // by hit of the whole batch, whether its place charged it, or tried to
}

// Decide implements limiter.Store. Its error joins those of the places; hits of a place that failed are Undecided, and are
// taken for allowed when the others are set right.
func (s *Store) Decide(ctx context.Context, b *limiter.Batch) error {
	first, several := 0, false
	for i := range b.Hits {
		place := s.placeOf(&b.Hits[i])
		if i == 0 {
			first = place
		}
		several = several || place != first
	}
	if !several {
		return s.places[first].Decide(ctx, b)
	}
	w, _ := s.works.Get().(*work)
	defer s.works.Put(w)
	w.split(s, b)
	err := w.decide(ctx, s)
	w.merge(b)
	s.setRight(ctx, b, w.tried)
	return err
}

func (w *work) reset() {
	for p := range w.batches {
		clear(w.batches[p].Hits)
		w.batches[p].Hits, w.batches[p].Decisions = w.batches[p].Hits[:0], w.batches[p].Decisions[:0]
		w.indexes[p] = w.indexes[p][:0]
	}
}

func (w *work) add(place, index int, h limiter.Hit) {
	b := &w.batches[place]
	b.Hits = append(b.Hits, h)
	b.Decisions = append(b.Decisions, limiter.Decision{})
	w.indexes[place] = append(w.indexes[place], index)
}

func (w *work) split(s *Store, b *limiter.Batch) {
	w.reset()
	for i := range b.Hits {
		w.add(s.placeOf(&b.Hits[i]), i, b.Hits[i])
	}
	for p := range w.batches {
		w.batches[p].Flow = b.Flow
	}
}

// decide has all places decide at once what is theirs.
func (w *work) decide(ctx context.Context, s *Store) error {
	errs := make([]error, len(w.batches))
	var others sync.WaitGroup
	for p := range w.batches {
		if len(w.batches[p].Hits) > 0 {
			others.Go(func() { errs[p] = s.places[p].Decide(ctx, &w.batches[p]) })
		}
	}
	others.Wait()
	return errors.Join(errs...)
}

func (w *work) merge(b *limiter.Batch) {
	w.tried = append(w.tried[:0], make([]bool, len(b.Hits))...)
	for p := range w.batches {
		for n, i := range w.indexes[p] {
			b.Decisions[i] = w.batches[p].Decisions[n]
		}
		for n, charged := range w.batches[p].Charges {
			w.tried[w.indexes[p][n]] = charged
		}
	}
	b.Allowed = verdict(b)
}

// verdict is b's, with undecided hits taken for allowed.
func verdict(b *limiter.Batch) bool {
	for i := range b.Decisions {
		if b.Decisions[i].State == limiter.Undecided {
			b.Decisions[i].Allowed = true
		}
	}
	return b.Verdict()
}

// setRight gives back what was charged and should not have been, and charges what should have been and was not: a part
// may see a quota denied, and its request refused, which another part lets pass. It waits for that until ctx ends; a
// correction that fails is lost, which denies more than it should and never admits more.
func (s *Store) setRight(ctx context.Context, b *limiter.Batch, tried []bool) {
	var wrong []int
	for i, charged := range b.Charges {
		if d := &b.Decisions[i]; d.State == limiter.Decided && charged != tried[i] && charged != d.Charged {
			wrong = append(wrong, i)
		}
	}
	if len(wrong) == 0 {
		return
	}
	w := s.newWork() // which may be in use when this returns
	for _, i := range wrong {
		h := b.Hits[i]
		h.At = cmp.Or(h.At, b.Decisions[i].At)
		if tried[i] {
			h.Cost = -h.Cost
		}
		w.correct(s, i, h)
	}
	w.lookAgain(s, b, wrong)
	done := make(chan struct{})
	go func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), setRightWithin)
		defer cancel()
		_ = w.decide(ctx, s)
	}()
	select {
	case <-done:
		w.corrected(b)
	case <-ctx.Done():
	}
}

// setRightWithin bounds how long corrections may take.
const setRightWithin = time.Second

// correct adds a correction, or a look, at the counter of hit i.
func (w *work) correct(s *Store, i int, h limiter.Hit) {
	h.Charge, h.Role, h.Key, h.Partition = limiter.ChargeDenied, limiter.Shadow, strings.Clone(h.Key), strings.Clone(h.Partition)
	w.add(s.placeOf(&h), i, h)
}

// lookAgain adds looks for the hits of counters that are being set right beside them.
func (w *work) lookAgain(s *Store, b *limiter.Batch, wrong []int) {
	for j := range b.Hits {
		sameCounter := func(i int) bool { return b.Hits[i].Key == b.Hits[j].Key }
		if slices.ContainsFunc(wrong, sameCounter) && !slices.Contains(wrong, j) {
			h := b.Hits[j]
			h.Cost, h.At = 0, 0
			w.correct(s, j, h)
		}
	}
}

// corrected takes from the decisions of corrections and looks what holds for b's now.
func (w *work) corrected(b *limiter.Batch) {
	for p := range w.batches {
		for n, i := range w.indexes[p] {
			d, after, cost := &b.Decisions[i], &w.batches[p].Decisions[n], w.batches[p].Hits[n].Cost
			if after.State != limiter.Decided {
				continue
			}
			d.ResetAfter = after.ResetAfter
			if cost != 0 {
				d.Charged, d.Room = cost > 0 && after.Charged, d.Room-cost
			}
		}
	}
}
