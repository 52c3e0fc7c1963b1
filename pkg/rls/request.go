package rls

import (
	"errors"
	"unicode/utf8"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
)

// request is a RateLimitRequest, as envoy/service/ratelimit/v3/rls.proto has it. Its texts alias wire, so it is
// good until the next unmarshal.
type request struct {
	wire        []byte
	domain      string
	hitsAddend  uint32
	explained   bool // the answer is to be
	descriptors []sentDescriptor
	entries     []descriptors.Entry // of all descriptors
}

// sentDescriptor is a RateLimitDescriptor.
type sentDescriptor struct {
	first, end int // its entries
	// hits is its own hits_addend, if ownHits tells that it has one.
	hits     uint64
	ownHits  bool
	negative bool
	limited  bool // it has a limit of its own
	limit    sentLimit
}

// sentLimit is a RateLimitOverride.
type sentLimit struct {
	requests      uint32
	unit          int32
	multiplier    uint32
	hasMultiplier bool
}

// errUTF8 is for texts that proto3 doesn't allow.
var errUTF8 = errors.New("a text is not valid UTF-8")

// reset makes r empty, with its buffers.
func (r *request) reset() {
	clear(r.entries)
	*r = request{wire: r.wire[:0], descriptors: r.descriptors[:0], entries: r.entries[:0]}
}

// unmarshal reads r.wire. It accepts and refuses what the generated code does, and reads the same of it: fields
// that are unknown, or not of their kind, are skipped, and of several in one place the last counts.
func (r *request) unmarshal() error {
	w := walk{rest: r.wire}
	for w.next() {
		switch {
		case w.is(1, protowire.BytesType):
			r.domain = w.text()
		case w.is(2, protowire.BytesType):
			w.fail(r.descriptor(w.bytes()))
		case w.is(3, protowire.VarintType):
			r.hitsAddend = uint32(w.varint())
		case w.is(explainField, protowire.VarintType):
			r.explained = w.varint() != 0
		default:
			w.skip()
		}
	}
	return w.err
}

func (r *request) descriptor(b []byte) error {
	d := sentDescriptor{first: len(r.entries)}
	w := walk{rest: b}
	for w.next() {
		switch {
		case w.is(1, protowire.BytesType):
			w.fail(r.entry(w.bytes()))
		case w.is(2, protowire.BytesType):
			d.limited = true
			w.fail(d.limit.unmarshal(w.bytes()))
		case w.is(3, protowire.BytesType):
			d.ownHits = true
			w.fail(unwrap(w.bytes(), &d.hits))
		case w.is(4, protowire.VarintType):
			d.negative = w.varint() != 0
		default:
			w.skip()
		}
	}
	d.end = len(r.entries)
	r.descriptors = append(r.descriptors, d)
	return w.err
}

func (r *request) entry(b []byte) error {
	e := descriptors.Entry{}
	w := walk{rest: b}
	for w.next() {
		switch {
		case w.is(1, protowire.BytesType):
			e.Key = w.text()
		case w.is(2, protowire.BytesType):
			e.Value = w.text()
		default:
			w.skip()
		}
	}
	r.entries = append(r.entries, e)
	return w.err
}

func (l *sentLimit) unmarshal(b []byte) error {
	w := walk{rest: b}
	for w.next() {
		switch {
		case w.is(1, protowire.VarintType):
			l.requests = uint32(w.varint())
		case w.is(2, protowire.VarintType):
			l.unit = int32(w.varint())
		case w.is(3, protowire.BytesType):
			l.hasMultiplier = true
			n := uint64(l.multiplier)
			w.fail(unwrap(w.bytes(), &n))
			l.multiplier = uint32(n)
		default:
			w.skip()
		}
	}
	return w.err
}

// unwrap reads the value of a UInt32Value or a UInt64Value, if there is one.
func unwrap(b []byte, value *uint64) error {
	w := walk{rest: b}
	for w.next() {
		if w.is(1, protowire.VarintType) {
			*value = w.varint()
		} else {
			w.skip()
		}
	}
	return w.err
}

// walk goes through the fields of a message. After an error there is no next one.
type walk struct {
	rest   []byte
	number protowire.Number
	kind   protowire.Type
	err    error
}

func (w *walk) next() bool {
	if w.err != nil || len(w.rest) == 0 {
		return false
	}
	number, kind, n := protowire.ConsumeTag(w.rest)
	if n >= 0 && !number.IsValid() {
		n = -1
	}
	w.number, w.kind = number, kind
	return w.advance(n)
}

func (w *walk) is(number protowire.Number, kind protowire.Type) bool {
	return w.number == number && w.kind == kind
}

// advance goes on by n bytes, or ends with the error that a negative n stands for.
func (w *walk) advance(n int) bool {
	if n < 0 {
		w.fail(protowire.ParseError(n))
		return false
	}
	w.rest = w.rest[n:]
	return true
}

func (w *walk) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

func (w *walk) skip() {
	w.advance(protowire.ConsumeFieldValue(w.number, w.kind, w.rest))
}

func (w *walk) varint() uint64 {
	v, n := protowire.ConsumeVarint(w.rest)
	w.advance(n)
	return v
}

func (w *walk) bytes() []byte {
	b, n := protowire.ConsumeBytes(w.rest)
	w.advance(n)
	return b
}

// text aliases the message.
func (w *walk) text() string {
	b := w.bytes()
	if !utf8.Valid(b) {
		w.fail(errUTF8)
	}
	return unsafe.String(unsafe.SliceData(b), len(b))
}
