package accesslog

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
)

// MaxLine is the length of the longest line that is read, in bytes.
const MaxLine = 64 << 10

// ErrLong is the error of a line that is longer than MaxLine.
var ErrLong = fmt.Errorf("the line is longer than %d bytes", MaxLine)

// Lines reads the lines of a log, which may be gzipped. It is for one goroutine.
type Lines struct {
	r *bufio.Reader
	// Number is that of the line that Next has returned, from 1.
	Number int64
}

// NewLines reads r, without a byte order mark.
func NewLines(r io.Reader) (*Lines, error) {
	b := bufio.NewReaderSize(r, MaxLine+1)
	if starts(b, "\x1f\x8b") {
		z, err := gzip.NewReader(b)
		if err != nil {
			return nil, err
		}
		b = bufio.NewReaderSize(z, MaxLine+1)
	}
	if mark := "\ufeff"; starts(b, mark) {
		_, _ = b.Discard(len(mark)) // they are there
	}
	return &Lines{r: b}, nil
}

func starts(b *bufio.Reader, with string) bool {
	start, _ := b.Peek(len(with)) // an error comes again
	return string(start) == with
}

// Next returns the next line that is not empty, without its end, good until the next call. The error is ErrLong, after
// which there are others, io.EOF, or why the log can't be read.
func (l *Lines) Next() ([]byte, error) {
	for {
		line, err := l.r.ReadSlice('\n')
		l.Number++
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			return nil, l.skip()
		case err != nil && (!errors.Is(err, io.EOF) || len(line) == 0):
			return nil, err
		}
		if line = bytes.TrimRight(line, "\r\n"); len(line) > 0 {
			return line, nil
		}
	}
}

// skip reads on to the end of a line that is too long.
func (l *Lines) skip() error {
	for {
		_, err := l.r.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err == nil || errors.Is(err, io.EOF):
			return ErrLong
		}
		return err
	}
}
