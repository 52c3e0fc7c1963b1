package simulate

import (
	"sync"

	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

const (
	// batchSize is how many requests go from who reads them to who asks at once.
	batchSize = 1024
	// queued is how many batches wait between the two.
	queued = 4
)

// Run is traffic that one or two sets are asked about.
type Run struct {
	Traffic Traffic
	Sets    []*Set
	// Top is how many of those who are refused most are named.
	Top int
	// Each, unless it is nil, is told of every request and what the last set said to it.
	Each func(*Request, Verdict)
	// Progress, unless it is nil, is told from time to time how many requests were asked for, and when the last was.
	Progress func(requests, at int64)
}

// Do runs through the traffic: it is read on one core while each set is asked on another.
func (r *Run) Do() (*Result, error) {
	w := &work{run: r, newly: [2]*top{newTop(), newTop()}}
	for _, s := range r.Sets {
		w.tallies = append(w.tallies, newTally(s))
	}
	batches, failed := make(chan []*Request, queued), make(chan error, 1)
	go func() {
		defer close(batches)
		failed <- r.read(batches)
	}()
	for batch := range batches {
		w.batch(batch)
		if r.Progress != nil {
			r.Progress(w.result.Requests, w.result.To)
		}
	}
	if err := <-failed; err != nil {
		return nil, err
	}
	return w.finished(), nil
}

// read sends the traffic in batches.
func (r *Run) read(batches chan<- []*Request) error {
	batch := make([]*Request, 0, batchSize)
	err := r.Traffic.Each(func(req *Request) bool {
		if batch = append(batch, req); len(batch) == batchSize {
			batches <- batch
			batch = make([]*Request, 0, batchSize)
		}
		return true
	})
	if len(batch) > 0 {
		batches <- batch
	}
	return err
}

// work is a Run under way.
type work struct {
	run     *Run
	tallies []*tally
	refused [2][batchSize]bool
	by      [2][batchSize][]rls.Decided // the limits that refuse
	newly   [2]*top                     // whom only one of two sets refuses
	result  Result
}

func (w *work) batch(batch []*Request) {
	var sets sync.WaitGroup
	for i := range w.tallies {
		sets.Go(func() { w.ask(i, batch) })
	}
	sets.Wait()
	for n, r := range batch {
		w.compare(n, r)
	}
}

// ask asks a set about a batch.
func (w *work) ask(set int, batch []*Request) {
	t, each := w.tallies[set], w.run.Each
	if set < len(w.tallies)-1 {
		each = nil
	}
	for n, r := range batch {
		v := t.ask(r)
		w.refused[set][n], w.by[set][n] = v.Refused, w.by[set][n][:0]
		if each != nil {
			each(r, v)
		}
		for i := range v.Decided {
			if refuses(&v, &v.Decided[i]) {
				w.by[set][n] = append(w.by[set][n], v.Decided[i])
			}
		}
	}
}

// compare counts request n of a batch, by what the sets have said to it.
func (w *work) compare(n int, r *Request) {
	at := r.At
	if w.result.Requests++; w.result.Requests == 1 {
		w.result.From = at
	}
	w.result.To = at
	bin := w.result.Timeline.at(at)
	bin.Requests++
	for i := range w.tallies {
		if w.refused[i][n] {
			bin.Refused[i]++
		}
	}
	switch first, second := w.refused[0][n], w.refused[1][n]; {
	case len(w.tallies) < 2 || first == second:
		return
	case first:
		w.result.OnlyFirst++
	default:
		w.result.OnlySecond++
	}
	for i, t := range w.tallies {
		for d := range w.by[i][n] {
			by := &w.by[i][n][d]
			w.newly[i].add(by.Path, t.set.Counted(r, by))
		}
	}
}

func (w *work) finished() *Result {
	for _, t := range w.tallies {
		w.result.Sets = append(w.result.Sets, t.result(w.run.Top))
	}
	w.result.OnlyFirstWho, w.result.OnlySecondWho = w.newly[0].most(w.run.Top), w.newly[1].most(w.run.Top)
	return &w.result
}
