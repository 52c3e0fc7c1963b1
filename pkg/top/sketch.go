package top

import "github.com/envoy-rls/envoy-rls/pkg/descriptors"

// sketch counts what occurs most of any number of things, in bounded memory, by the space-saving algorithm: what is new
// takes the place, and the count, of what has least. So a count is never too low, and too high by what it took over at
// most. It is for one goroutine, and allocates nothing once it is full.
type sketch struct {
	slots []slot // of which the first used are in use
	used  int
	heap  []int          // their numbers, the least count first
	at    map[uint64]int // a slot's place in heap, by hash
}

type slot struct {
	hash        uint64
	count, over int64 // over is what it took over
	what        label
}

func newSketch(size int) *sketch {
	return &sketch{slots: make([]slot, size), heap: make([]int, 0, size), at: make(map[uint64]int, size)}
}

// reset forgets all, and keeps the memory.
func (s *sketch) reset() {
	s.used, s.heap = 0, s.heap[:0]
	clear(s.at)
}

// add counts weight more of what has a hash. It returns its label if that is new, to be written, or nil.
func (s *sketch) add(hash uint64, weight int64) *label {
	if place, ok := s.at[hash]; ok {
		s.slots[s.heap[place]].count += weight
		s.down(place)
		return nil
	}
	if s.used < len(s.slots) {
		l := &s.slots[s.used]
		l.hash, l.count, l.over = hash, weight, 0
		s.heap = append(s.heap, s.used)
		s.at[hash] = s.used
		s.used++
		s.up(s.used - 1)
		return &l.what
	}
	least := &s.slots[s.heap[0]]
	delete(s.at, least.hash)
	least.hash, least.over, least.count = hash, least.count, least.count+weight
	s.at[hash] = 0
	s.down(0)
	return &least.what
}

func (s *sketch) count(place int) int64 { return s.slots[s.heap[place]].count }

func (s *sketch) swap(a, b int) {
	s.heap[a], s.heap[b] = s.heap[b], s.heap[a]
	s.at[s.slots[s.heap[a]].hash], s.at[s.slots[s.heap[b]].hash] = a, b
}

func (s *sketch) up(place int) {
	for place > 0 {
		parent := (place - 1) / 2
		if s.count(parent) <= s.count(place) {
			return
		}
		s.swap(parent, place)
		place = parent
	}
}

func (s *sketch) down(place int) {
	for {
		least := place
		for child := 2*place + 1; child <= 2*place+2 && child < len(s.heap); child++ {
			if s.count(child) < s.count(least) {
				least = child
			}
		}
		if least == place {
			return
		}
		s.swap(least, place)
		place = least
	}
}

// The most that a label keeps, of what clients choose: entries, and bytes of a key and of a value.
const (
	maxEntries = 8
	maxKey     = 64
	maxValue   = 128
)

// label is what a slot counts. Its memory is used again.
type label struct {
	rule  string // a rule's path, which is not a client's
	would bool
	text  []byte
	ends  [2 * maxEntries]int // in text, of keys and values in turn
	n     int                 // entries
	cut   bool                // there was more
}

// write keeps copies of entries.
func (l *label) write(rule string, would bool, entries []descriptors.Entry) {
	l.rule, l.would, l.text = rule, would, l.text[:0]
	l.n, l.cut = min(len(entries), maxEntries), len(entries) > maxEntries
	for i, e := range entries[:l.n] {
		l.cut = l.cut || len(e.Key) > maxKey || len(e.Value) > maxValue
		l.text = append(l.text, e.Key[:min(len(e.Key), maxKey)]...)
		l.ends[2*i] = len(l.text)
		l.text = append(l.text, e.Value[:min(len(e.Value), maxValue)]...)
		l.ends[2*i+1] = len(l.text)
	}
}

func (l *label) entries() []descriptors.Entry {
	list := make([]descriptors.Entry, l.n)
	begin := 0
	for i := range list {
		key, value := l.ends[2*i], l.ends[2*i+1]
		list[i] = descriptors.Entry{Key: string(l.text[begin:key]), Value: string(l.text[key:value])}
		begin = value
	}
	return list
}
