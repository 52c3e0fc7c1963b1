package redisstore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// places are stores over a single server and over a cluster.
func places(t *testing.T) map[string]func() *Store {
	t.Helper()
	single, cluster := proctest.StartRedis(t), proctest.StartRedisCluster(t, 3, false)
	return map[string]func() *Store{
		"a server":  func() *Store { return openURL(t, single.URL()) },
		"a cluster": func() *Store { return openURL(t, cluster.URL()) },
	}
}

// read returns the notes that differ from a version, each with its text.
func read(t *testing.T, s *Store, known string) (version string, notes map[string]string, left time.Duration) {
	t.Helper()
	notes = map[string]string{}
	version, err := s.Notes(t.Context(), known, func(name, text string, remaining time.Duration) {
		notes[name], left = text, remaining
	})
	if err != nil {
		t.Fatal(err)
	}
	return version, notes, left
}

func TestNotesAreSharedUntilTheyEnd(t *testing.T) {
	for name, openPlace := range places(t) {
		t.Run(name, func(t *testing.T) {
			one, other := openPlace(), openPlace()
			note := func(name, text string, lifetime time.Duration) {
				t.Helper()
				if err := one.Note(t.Context(), name, text, lifetime); err != nil {
					t.Fatal(err)
				}
			}
			version, notes, _ := read(t, other, "")
			if version != "" || len(notes) > 0 {
				t.Errorf("at first there is %q: %v", version, notes)
			}
			note("a", `{"text": "one of several words"}`, time.Hour)
			note("b", "", 30*time.Second)
			version, notes, _ = read(t, other, version)
			if want := map[string]string{"a": `{"text": "one of several words"}`, "b": ""}; !maps.Equal(notes, want) {
				t.Errorf("there is %v, want %v", notes, want)
			}
			if same, notes, _ := read(t, other, version); same != version || len(notes) > 0 {
				t.Errorf("what is known is told again: %v", notes)
			}
			note("a", "another", time.Minute)
			_, notes, left := read(t, other, version)
			if notes["a"] != "another" || left > time.Minute {
				t.Errorf("there is %v, for %s", notes, left)
			}
			note("b", "", 100*time.Millisecond)
			proctest.Eventually(t, "a note ends", func() bool {
				_, notes, _ := read(t, other, "unknown")
				return maps.Equal(notes, map[string]string{"a": "another"})
			})
			note("a", "", 0)
			if version, notes, _ := read(t, other, "unknown"); version != "" || len(notes) > 0 {
				t.Errorf("what was taken away is there: %v", notes)
			}
		})
	}
}

func TestCountersAreSweptAndDeleted(t *testing.T) {
	for name, openPlace := range places(t) {
		t.Run(name, func(t *testing.T) {
			s := openPlace()
			check(t, s) // which leaves keys that are no counters'
			if err := s.Note(t.Context(), "a", "note", time.Hour); err != nil {
				t.Fatal(err)
			}
			for i := range 3000 {
				decide(t, s, fmt.Sprint("1:d", i), 1)
			}
			decide(t, s, "2:other", 1)
			decide(t, s, "#hash[*]?", 1)
			seen := map[string]bool{}
			sweep := func(begin string, visit func(name string) (drop, more bool)) {
				t.Helper()
				if err := s.Sweep(t.Context(), begin, visit); err != nil {
					t.Fatal(err)
				}
			}
			all := func(name string) (drop, more bool) {
				seen[name] = true
				return strings.HasSuffix(name, "7"), true
			}
			sweep("1#", all)
			if len(seen) != 3001 || !seen["#hash[*]?"] || !seen["1:d2999"] {
				t.Errorf("%d counters are seen", len(seen))
			}
			clear(seen)
			sweep("1", all)
			if len(seen) != 2700 || seen["1:d7"] {
				t.Errorf("%d counters are left", len(seen))
			}
			visits := 0
			sweep("12#", func(string) (drop, more bool) { visits++; return false, visits < 5 })
			if visits != 5 {
				t.Errorf("there were %d visits", visits)
			}
			n, err := s.Delete(t.Context(), []limiter.Hit{{Key: "1:d0", Limit: threePerDay}, {Key: "2:other", Limit: threePerDay}, {Key: "1:none", Limit: threePerDay}})
			if err != nil || n != 2 {
				t.Errorf("%d were deleted, %v", n, err)
			}
			if d := decide(t, s, "1:d0", 1); d.Room != 2 {
				t.Errorf("a deleted counter has room for %d", d.Room)
			}
		})
	}
}

// TestNotesFollowASlot: a node that has given its slot away says so.
func TestNotesFollowASlot(t *testing.T) {
	c := proctest.StartRedisCluster(t, 3, false)
	s := openURL(t, c.URL())
	if err := s.Note(t.Context(), "a", "note", time.Hour); err != nil {
		t.Fatal(err)
	}
	prefix, _, _ := strings.Cut(s.prefixes[0], "}")
	_, tag, _ := strings.Cut(prefix, "{")
	slot := slotOf(tag)
	owner := slices.IndexFunc(c.Masters, func(m *proctest.Redis) bool {
		return m.Client().Get(context.Background(), s.notesKey()).Err() == nil
	})
	c.MoveSlot(t, slot, c.Masters[owner], c.Masters[(owner+1)%3])
	if err := s.Note(t.Context(), "b", "after", time.Hour); err != nil {
		t.Fatal(err)
	}
	if _, notes, _ := read(t, s, ""); len(notes) != 2 {
		t.Errorf("there is %v", notes)
	}
}
