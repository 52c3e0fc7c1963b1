package overrides

import (
	"context"
	"strconv"
	"sync"
	"time"
)

// NewBoard returns a Board for one replica. Its methods never fail.
func NewBoard(now func() time.Time) Board { return &memory{now: now, notes: map[string]memoryNote{}} }

type memory struct {
	now func() time.Time

	mu      sync.Mutex
	notes   map[string]memoryNote
	changes int
}

type memoryNote struct {
	text string
	ends time.Time
}

// Notes implements Board.
func (m *memory) Notes(
	_ context.Context, known string, yield func(name, text string, left time.Duration),
) (version string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if version = strconv.Itoa(m.changes); version == known {
		return version, nil
	}
	now := m.now()
	for name, n := range m.notes {
		if n.ends.After(now) {
			yield(name, n.text, n.ends.Sub(now))
		}
	}
	return version, nil
}

// Note implements Board.
func (m *memory) Note(_ context.Context, name, text string, lifetime time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	for other, n := range m.notes {
		if other == name || !n.ends.After(now) {
			delete(m.notes, other)
		}
	}
	if lifetime > 0 {
		m.notes[name] = memoryNote{text, now.Add(lifetime)}
	}
	m.changes++
	return nil
}
