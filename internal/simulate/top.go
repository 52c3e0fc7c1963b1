package simulate

import (
	"cmp"
	"container/heap"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
)

const (
	// maxTop is how many values a top counts exactly.
	maxTop = 20_000
	// maxKey is the length of the longest key that is kept as it is.
	maxKey = 256
	// maxShownValue is how much of a value is kept to be shown.
	maxShownValue = 128
)

// Who is whom a limit refused: the limit's path, and the entries by which it counts apart.
type Who struct {
	Limit  string
	Values []descriptors.Entry
}

// Refusals is how often somebody was refused.
type Refusals struct {
	Who
	Requests int64
	// AtMost is 0, or as many of Requests as may have been somebody else's: there were too many to count them all.
	AtMost int64
}

// top counts refusals by whom they met. When there are too many to keep, a newcomer takes the place of who has the fewest,
// and its count: nobody who was refused often is missing, and nobody's count is too low.
type top struct {
	all map[string]*ranked
	few fewest
	key []byte
}

type ranked struct {
	Refusals
	key string
	at  int // in few
}

func newTop() *top { return &top{all: map[string]*ranked{}} }

// add counts a refusal. It keeps no part of values.
func (t *top) add(limit string, values []descriptors.Entry) {
	t.key = appendPart(t.key[:0], limit)
	for _, e := range values {
		t.key = appendPart(appendPart(t.key, e.Key), e.Value)
	}
	if len(t.key) > maxKey {
		sum := sha256.Sum256(t.key)
		t.key = append(t.key[:0], sum[:]...)
	}
	r := t.all[string(t.key)]
	if r == nil {
		r = t.newcomer()
		r.key, r.Who = string(t.key), Who{limit, kept(values)}
		t.all[r.key] = r
	}
	r.Requests++
	heap.Fix(&t.few, r.at)
}

// newcomer makes room for somebody.
func (t *top) newcomer() *ranked {
	if len(t.few) < maxTop {
		r := &ranked{}
		heap.Push(&t.few, r)
		return r
	}
	r := t.few[0]
	delete(t.all, r.key)
	r.AtMost = r.Requests
	return r
}

// kept is a copy of entries in which no value is long.
func kept(entries []descriptors.Entry) []descriptors.Entry {
	list := slices.Clone(entries)
	for i := range list {
		list[i].Value = strings.Clone(shortened(list[i].Value))
	}
	return list
}

func shortened(value string) string {
	if len(value) <= maxShownValue {
		return value
	}
	return strings.ToValidUTF8(value[:maxShownValue], "") + "…"
}

// appendPart appends a text behind its length, so that no two lists of texts are alike.
func appendPart(dst []byte, text string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(text))), text...)
}

// most are the n who were refused most often.
func (t *top) most(n int) []Refusals {
	list := make([]Refusals, 0, len(t.few))
	for _, r := range t.few {
		list = append(list, r.Refusals)
	}
	slices.SortFunc(list, func(a, b Refusals) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.Limit, b.Limit), compareEntries(a.Values, b.Values))
	})
	return list[:min(n, len(list))]
}

func compareEntries(a, b []descriptors.Entry) int {
	return slices.CompareFunc(a, b, func(a, b descriptors.Entry) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Value, b.Value))
	})
}

// fewest is a heap: who was refused least is the first.
type fewest []*ranked

// Len implements heap.Interface.
func (f fewest) Len() int { return len(f) }

// Less implements heap.Interface.
func (f fewest) Less(i, j int) bool { return f[i].Requests < f[j].Requests }

// Swap implements heap.Interface.
func (f fewest) Swap(i, j int) {
	f[i], f[j] = f[j], f[i]
	f[i].at, f[j].at = i, j
}

// Push implements heap.Interface.
func (f *fewest) Push(r any) {
	pushed, _ := r.(*ranked)
	pushed.at = len(*f)
	*f = append(*f, pushed)
}

// Pop implements heap.Interface.
func (f *fewest) Pop() any {
	last := len(*f) - 1
	r := (*f)[last]
	*f = (*f)[:last]
	return r
}
