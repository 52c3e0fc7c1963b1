package overrides

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
)

// Max is how many overrides there can be at once.
const Max = 100

// interval is how often a Set looks what others have changed.
const interval = time.Second

// resetNote is the name of the note that changes when counters were reset.
const resetNote = "reset"

// Board keeps notes for all replicas, each for a time. Any number of goroutines may use it.
type Board interface {
	// Notes calls yield with each note and how much time it has left, unless nothing has changed since the known version,
	// and returns the present one. On an error it may have called yield with some of them.
	Notes(ctx context.Context, known string, yield func(name, text string, left time.Duration)) (version string, err error)
	// Note keeps a text by a name, in place of one that is there, for a lifetime; 0 takes it away.
	Note(ctx context.Context, name, text string, lifetime time.Duration) error
}

// Options are a Set's settings.
type Options struct {
	// Changed is told the overrides whenever they are others, in the order in which they go before each other; and Reset that
	// counters were reset or given back, by whatever replica. Both are called by one goroutine at a time, and may be nil.
	Changed func([]Override)
	Reset   func()
	// Log gets a warning, which is seen at any usual level, for each override that is set, unset or expired.
	Log *slog.Logger
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// Set is the overrides that are active, as far as this replica knows. Any number of goroutines may use it.
type Set struct {
	board   Board
	options Options

	reading sync.Mutex // held while the board is read, and what it says put in force
	version string
	reset   string
	failing bool

	mu     sync.Mutex
	active map[string]Override // by ID
}

// The errors that are the caller's to mend.
var (
	ErrUnknown = errors.New("there is no such override")
	ErrTooMany = fmt.Errorf("there are %d overrides already; unset one, or change the rules", Max)
)

// New returns a Set that knows no overrides until Run, or the first change.
func New(board Board, o Options) *Set {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Changed == nil {
		o.Changed = func([]Override) {}
	}
	if o.Reset == nil {
		o.Reset = func() {}
	}
	return &Set{board: board, options: o, active: map[string]Override{}}
}

// Run keeps the Set up to date until ctx ends: with what others change within about a second, and without what has ended at
// once, also while the board can't be read.
func (s *Set) Run(ctx context.Context) {
	for {
		s.look(ctx)
		select {
		case <-time.After(s.untilNext()):
		case <-ctx.Done():
			return
		}
	}
}

// look reads the board and expires what has ended.
func (s *Set) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, interval/2)
	defer cancel()
	err := s.read(ctx, "")
	s.expire()
	if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return // the program ends
	}
	s.reading.Lock()
	defer s.reading.Unlock()
	switch {
	case err != nil && !s.failing:
		s.options.Log.Warn("overrides can't be read, those known stay until they end", "error", err)
	case err == nil && s.failing:
		s.options.Log.Info("overrides can be read again")
	}
	s.failing = err != nil
}

// untilNext is how long until something is to be done.
func (s *Set) untilNext() time.Duration {
	now, wait := s.options.Now(), interval
	for _, o := range s.List() {
		wait = min(wait, o.Until.Sub(now))
	}
	return max(wait, time.Millisecond)
}

// List returns the active overrides, in the order in which they go before each other: the newest first.
func (s *Set) List() []Override {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]Override, 0, len(s.active))
	for _, o := range s.active {
		list = append(list, o)
	}
	slices.SortFunc(list, func(a, b Override) int { return cmp.Or(cmp.Compare(b.at, a.at), cmp.Compare(a.ID, b.ID)) })
	return list
}

// Put has o in force for a lifetime, from a second to MaxLifetime: here when it returns, and everywhere within about a
// second. It returns o with its ID. Whether the rules have what it is about is for the caller to know.
func (s *Set) Put(ctx context.Context, o Override, lifetime time.Duration) (Override, error) {
	if err := o.Validate(); err != nil {
		return o, err
	}
	if lifetime < time.Second || lifetime > MaxLifetime {
		return o, fmt.Errorf("an override lasts from 1s to %s, not %s", MaxLifetime, lifetime)
	}
	now := s.options.Now()
	o.ID, o.at, o.Until = o.id(), now.UnixMilli(), now.Add(lifetime)
	if !s.roomFor(o.ID) {
		return o, ErrTooMany
	}
	if err := s.board.Note(ctx, o.ID, o.text(), lifetime); err != nil {
		return o, fmt.Errorf("the override is perhaps not set: %w", err)
	}
	return o, s.read(ctx, o.By)
}

func (s *Set) roomFor(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, known := s.active[id]
	return known || len(s.active) < Max
}

// Unset ends the override of an ID, for by, who is named in the log. The error is ErrUnknown if there is none.
func (s *Set) Unset(ctx context.Context, id, by string) error {
	if err := s.read(ctx, ""); err != nil {
		return err
	}
	s.mu.Lock()
	_, known := s.active[id]
	s.mu.Unlock()
	if !known {
		return ErrUnknown
	}
	if err := s.board.Note(ctx, id, "", 0); err != nil {
		return fmt.Errorf("the override is perhaps not unset: %w", err)
	}
	return s.read(ctx, by)
}

// CountersReset tells all replicas that counters were reset or given back.
func (s *Set) CountersReset(ctx context.Context) error {
	if err := s.board.Note(ctx, resetNote, rand.Text(), MaxLifetime); err != nil {
		return fmt.Errorf("other replicas may refuse from memory for a while: %w", err)
	}
	return s.read(ctx, "")
}

// read puts in force what the board says now. by is who has changed it, or "" if that was another replica.
func (s *Set) read(ctx context.Context, by string) error {
	s.reading.Lock()
	defer s.reading.Unlock()
	now := s.options.Now()
	told, reset := map[string]Override{}, ""
	version, err := s.board.Notes(ctx, s.version, func(name, text string, left time.Duration) {
		if name == resetNote {
			reset = text
			return
		}
		o, err := parse(name, text)
		if err != nil {
			s.options.Log.Warn("an override of another replica can't be used here", "id", descriptors.Printable(name), "error", err)
			return
		}
		o.Until = now.Add(left)
		told[name] = o
	})
	if err != nil || version == s.version {
		return err
	}
	s.version = version
	if reset != "" && reset != s.reset {
		s.reset = reset
		s.options.Reset()
	}
	s.replace(told, cmp.Or(by, "another replica"))
	return nil
}

// replace has the overrides be told, and tells of the differences.
func (s *Set) replace(told map[string]Override, by string) {
	s.mu.Lock()
	before := s.active
	s.active = told
	s.mu.Unlock()
	now, changed := s.options.Now(), false
	for id, o := range before {
		if _, stays := told[id]; !stays {
			s.ended(&o, by)
			changed = true
		}
	}
	for id, o := range told {
		if was, known := before[id]; !known || was.text() != o.text() {
			s.options.Log.Warn("override set", o.attributes(o.left(now), "by", o.By, "reason", o.Reason)...)
			changed = true
		}
	}
	if changed {
		s.options.Changed(s.List())
	}
}

// ended tells of an override that is there no more.
func (s *Set) ended(o *Override, by string) {
	if o.Until.Sub(s.options.Now()) < time.Second { // the board's clock may be ahead
		s.options.Log.Warn("override expired", o.attributes("set_by", o.By, "reason", o.Reason)...)
		return
	}
	s.options.Log.Warn("override unset", o.attributes("by", by, "set_by", o.By, "reason", o.Reason)...)
}

// expire ends what has had its time.
func (s *Set) expire() {
	s.reading.Lock()
	defer s.reading.Unlock()
	now := s.options.Now()
	var over []Override
	s.mu.Lock()
	for id, o := range s.active {
		if !now.Before(o.Until) {
			over = append(over, o)
			delete(s.active, id)
		}
	}
	s.mu.Unlock()
	for i := range over {
		s.ended(&over[i], "")
	}
	if len(over) > 0 {
		s.options.Changed(s.List())
	}
}
