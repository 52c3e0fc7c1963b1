// Package certs holds certificates, their keys and authorities that are in files, which may be replaced at any time: in
// place, one after the other, or by the swap of a link to their directory. What can't be read or doesn't fit together is
// told of, and what was last good stays in use.
package certs

import (
	"os"
	"sync"
	"time"
)

// Report is told of each change of files: when the first certificate of what is in use now expires, or what is wrong with what
// they hold. It is called by whoever finds the change, one at a time, and must return soon.
type Report func(expires time.Time, wrong error)

// source is what some files hold. They are looked at for every use: without a watcher nothing has to be stopped, no file
// system is special, and no use comes too early for it.
type source[T any] struct {
	files  []string
	parse  func(contents [][]byte) (value T, expires time.Time, err error)
	report Report

	mu      sync.Mutex
	seen    string // what the files held when they were last looked at, or why they couldn't be read
	wrong   error  // what is wrong with that
	value   T      // of what was last good
	expires time.Time
	loaded  bool // there is one
}

// get returns what the files hold, or last held that was good, and when the first of it expires. The error is for files that
// never were good.
func (s *source[T]) get() (value T, expires time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	contents, err := read(s.files)
	if seen := state(contents, err); seen != s.seen {
		s.seen = seen
		s.change(contents, err)
	}
	if !s.loaded {
		return s.value, s.expires, s.wrong
	}
	return s.value, s.expires, nil
}

func (s *source[T]) change(contents [][]byte, err error) {
	var value T
	var expires time.Time
	if err == nil {
		value, expires, err = s.parse(contents)
	}
	if s.wrong = err; err == nil {
		s.value, s.expires, s.loaded = value, expires, true
	}
	if s.report != nil {
		s.report(expires, err)
	}
}

// read returns what files hold.
func read(files []string) ([][]byte, error) {
	contents := make([][]byte, len(files))
	for i, file := range files {
		var err error
		if contents[i], err = os.ReadFile(file); err != nil {
			return nil, err
		}
	}
	return contents, nil
}

// state differs for different results of read.
func state(contents [][]byte, err error) string {
	if err != nil {
		return "! " + err.Error()
	}
	text := "="
	for _, c := range contents {
		text += string(c) + "\x00"
	}
	return text
}
