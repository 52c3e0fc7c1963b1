package simulate

import (
	"container/heap"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/envoy-rls/envoy-rls/internal/accesslog"
)

const (
	// sortWithin is how long a line may come after one of a later request: proxies write it at a request's end.
	sortWithin = int64(time.Minute / time.Microsecond)
	// maxHeld and maxHeldBytes bound the requests that wait for such lines.
	maxHeld      = 100_000
	maxHeldBytes = 64 << 20
	// maxShown is how many of the lines that can't be read are told of.
	maxShown = 5
)

// Log is the traffic of log files, one after the other.
type Log struct {
	Files   []string
	Mapping *Mapping
	// Format is that of the lines; "" tells it by the first line of each file.
	Format accesslog.Format
	// TimeField is where JSON has the time; "" is where it usually is.
	TimeField string

	// Read and Size are how many bytes of all files were read, and are there; 0 if that is not known. Read may be asked
	// for at any time, by any goroutine.
	Read atomic.Int64
	Size int64

	Lines
	held  heldRequests
	bytes int   // of the values of held
	front int64 // the latest instant that was read
	last  int64 // that was yielded
}

// Lines are what became of a log's lines. It is to be looked at when all were read.
type Lines struct {
	// All but empty ones.
	All int64
	// Bad ones can't be read, for the reasons that are shown of the first few: "access.log:17: the line has no time".
	Bad   int64
	Shown []string
	// Without are those of requests that no descriptor is made of, since fields are missing: nothing is asked for them.
	Without int64
	// Late ones came more than a minute, or 100,000 lines, or 64 MiB, after one of a later request. They count as if they had come
	// when it was their turn.
	Late int64
}

// Measure finds out Size, and whether the files are there. It also tells whether all of them can be read again.
func (l *Log) Measure() (again bool, err error) {
	again = true
	for _, name := range l.Files {
		info, err := os.Stat(name)
		if err != nil {
			return false, fmt.Errorf("reading the log: %w", err)
		}
		again = again && info.Mode().IsRegular()
		l.Size += info.Size()
	}
	if !again {
		l.Size = 0
	}
	return again, nil
}

// Each implements Traffic. It may be called again, to read the files again.
func (l *Log) Each(yield func(*Request) bool) error {
	l.Lines, l.held, l.bytes, l.front, l.last = Lines{}, nil, 0, 0, 0
	l.Read.Store(0)
	for _, name := range l.Files {
		if more, err := l.file(name, yield); err != nil || !more {
			return err
		}
	}
	l.release(0, yield)
	return nil
}

func (l *Log) file(name string, yield func(*Request) bool) (more bool, err error) {
	f, err := os.Open(name)
	if err != nil {
		return false, fmt.Errorf("reading the log: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	lines, err := accesslog.NewLines(countingReader{f, &l.Read})
	if err != nil {
		return false, fmt.Errorf("reading %s: %w", name, err)
	}
	var parser *accesslog.Parser
	for {
		line, err := lines.Next()
		switch {
		case errors.Is(err, io.EOF):
			return true, nil
		case errors.Is(err, accesslog.ErrLong):
			l.bad(name, lines.Number, err)
			continue
		case err != nil:
			return false, fmt.Errorf("reading %s: line %d: %w", name, lines.Number, err)
		}
		if parser == nil {
			if parser, err = l.parser(line); err != nil {
				return false, err
			}
		}
		if err := l.line(parser, line); err != nil {
			l.bad(name, lines.Number, err)
			continue
		}
		if !l.release(l.front-sortWithin, yield) {
			return false, nil
		}
	}
}

// parser is for a file that begins with a line.
func (l *Log) parser(first []byte) (*accesslog.Parser, error) {
	format := l.Format
	if format == "" {
		format = accesslog.Detect(first)
	}
	return accesslog.NewParser(format, l.Mapping.Fields(), l.TimeField)
}

// line holds the request of a line until those that may come before it were read.
func (l *Log) line(p *accesslog.Parser, line []byte) error {
	record, err := p.Parse(line)
	if err != nil {
		return err
	}
	r, err := l.Mapping.Request(record.At, record.Fields)
	if err != nil {
		return err
	}
	l.All++
	l.front = max(l.front, r.At)
	if len(r.Descriptors) == 0 {
		l.Without++
		return nil
	}
	if r.At < l.last {
		l.Late++
		r.At = l.last
	}
	l.bytes += size(r)
	heap.Push(&l.held, heldRequest{r, l.All})
	return nil
}

func (l *Log) bad(name string, line int64, err error) {
	l.All++
	if l.Bad++; l.Bad <= maxShown {
		l.Shown = append(l.Shown, fmt.Sprintf("%s:%d: %s", filepath.Base(name), line, err))
	}
}

// release yields what came until an instant, or all if that is 0.
func (l *Log) release(until int64, yield func(*Request) bool) (more bool) {
	for len(l.held) > 0 && (until == 0 || l.held[0].At <= until || len(l.held) > maxHeld || l.bytes > maxHeldBytes) {
		r, _ := heap.Pop(&l.held).(heldRequest)
		l.bytes -= size(r.Request)
		l.last = r.At
		if !yield(r.Request) {
			return false
		}
	}
	return true
}

// size is the length of a request's values.
func size(r *Request) int {
	n := 0
	for _, d := range r.Descriptors {
		for _, e := range d {
			n += len(e.Value)
		}
	}
	return n
}

// heldRequest is a request and the number of its line among those that could be read.
type heldRequest struct {
	*Request
	line int64
}

// heldRequests is a heap: the earliest is the first, and of those at one instant that which was read first.
type heldRequests []heldRequest

// Len implements heap.Interface.
func (h heldRequests) Len() int { return len(h) }

// Less implements heap.Interface.
func (h heldRequests) Less(i, j int) bool {
	return h[i].At < h[j].At || h[i].At == h[j].At && h[i].line < h[j].line
}

// Swap implements heap.Interface.
func (h heldRequests) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *heldRequests) Push(r any) {
	held, _ := r.(heldRequest)
	*h = append(*h, held)
}

// Pop implements heap.Interface.
func (h *heldRequests) Pop() any {
	last := len(*h) - 1
	r := (*h)[last]
	(*h)[last] = heldRequest{}
	*h = (*h)[:last]
	return r
}

type countingReader struct {
	r io.Reader
	n *atomic.Int64
}

// Read implements io.Reader.
func (c countingReader) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n.Add(int64(n))
	return n, err
}
