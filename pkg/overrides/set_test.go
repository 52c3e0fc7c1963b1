package overrides

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/storetest"
)

// replica is a Set and what it has told.
type replica struct {
	*Set
	log     bytes.Buffer
	changes []string
	resets  int
}

// replicas are n of them over one board, by one clock.
func replicas(n int) (list []*replica, clock *storetest.Clock, board *breakable) {
	clock = &storetest.Clock{}
	clock.Set(time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC))
	board = &breakable{Board: NewBoard(clock.Now)}
	for range n {
		r := &replica{}
		r.Set = New(board, Options{
			Log: slog.New(slog.NewTextHandler(&r.log, nil)), Now: clock.Now, Reset: func() { r.resets++ },
			Changed: func(list []Override) {
				words := make([]string, len(list))
				for i := range list {
					words[i] = list[i].Words()
				}
				r.changes = append(r.changes, strings.Join(words, ", "))
			},
		})
		list = append(list, r)
	}
	return list, clock, board
}

// breakable is a board that can be away.
type breakable struct {
	Board
	mu  sync.Mutex
	err error
}

// Notes implements Board.
func (b *breakable) Notes(ctx context.Context, known string, yield func(name, text string, left time.Duration)) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return known, b.err
	}
	return b.Board.Notes(ctx, known, yield)
}

func override(rule string, kind descriptors.OverrideKind, match ...descriptors.Entry) Override {
	return Override{By: "ops", Reason: "why", Override: descriptors.Override{Domain: "d", Rule: rule, Kind: kind, Match: match}}
}

func (r *replica) put(t *testing.T, o Override, lifetime time.Duration) Override {
	t.Helper()
	o, err := r.Put(t.Context(), o, lifetime)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// active are the overrides of a replica after it has looked, in words.
func (r *replica) active(t *testing.T) string {
	t.Helper()
	r.look(t.Context())
	words := []string{}
	for _, o := range r.List() {
		words = append(words, o.Rule+" "+o.Words())
	}
	return strings.Join(words, ", ")
}

func TestReplicasHaveTheSameOverrides(t *testing.T) {
	list, clock, _ := replicas(2)
	one, other := list[0], list[1]
	limit := override("d.a", "")
	if err := limit.SetLimit("5/15minute"); err != nil {
		t.Fatal(err)
	}
	first := one.put(t, limit, time.Hour)
	clock.Advance(time.Second)
	other.put(t, override("d.b", descriptors.OverrideDeny), time.Minute)
	for _, r := range list {
		if got := r.active(t); got != "d.b deny, d.a limit 5 per 15 minutes" {
			t.Errorf("a replica has %s", got)
		}
	}
	one.put(t, override("d.a", descriptors.OverrideShadow), time.Hour)
	clock.Advance(time.Minute)
	for _, r := range list {
		if got := r.active(t); got != "d.a shadow" {
			t.Errorf("a replica has %s", got)
		}
	}
	if err := other.Unset(t.Context(), first.ID, "bob"); err != nil {
		t.Error(err)
	}
	if err := other.Unset(t.Context(), first.ID, "bob"); !errors.Is(err, ErrUnknown) {
		t.Errorf("it is unset twice: %v", err)
	}
	for _, r := range list {
		if got := r.active(t); got != "" {
			t.Errorf("a replica has %s", got)
		}
	}
	for _, r := range list {
		r.logged(t, `msg="override set" id=`+first.ID+` domain=d rule=d.a override="limit 5 per 15 minutes" for=`, ` by=ops reason=why`,
			`msg="override expired" id=`, `override=deny set_by=ops reason=why`)
	}
	other.logged(t, "override=shadow by=bob")
	one.logged(t, `override=shadow by="another replica"`)
	if got := strings.Join(other.changes, "|"); got != "deny, limit 5 per 15 minutes|shadow|" {
		t.Errorf("the other was told of %q", got)
	}
}

func (r *replica) logged(t *testing.T, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(r.log.String(), text) {
			t.Errorf("the log lacks %s:\n%s", text, r.log.String())
		}
	}
}

func TestAnOverrideEndsInTimeWithoutTheBoard(t *testing.T) {
	list, clock, board := replicas(1)
	r := list[0]
	r.put(t, override("d.a", descriptors.OverrideDeny), time.Minute)
	board.err = errors.New("away")
	clock.Advance(59 * time.Second)
	if got := r.active(t); got != "d.a deny" {
		t.Errorf("before its end there is %q", got)
	}
	if wait := r.untilNext(); wait != time.Second {
		t.Errorf("the next look is in %s", wait)
	}
	clock.Advance(time.Second)
	if got := r.active(t); got != "" {
		t.Errorf("after its end there is %q", got)
	}
	board.err = nil
	if got := r.active(t); got != "" {
		t.Errorf("once the board is back there is %q", got)
	}
	if log := r.log.String(); strings.Count(log, "can't be read") != 1 || strings.Count(log, "can be read again") != 1 {
		t.Errorf("it logs\n%s", log)
	}
	if _, err := r.Put(t.Context(), override("d.a", descriptors.OverrideDeny), MaxLifetime+1); err == nil {
		t.Error("one may last for more than a day")
	}
}

func TestResetsAreToldOfOnce(t *testing.T) {
	list, _, _ := replicas(2)
	for range 2 {
		if err := list[0].CountersReset(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, r := range list {
			r.look(t.Context())
			r.look(t.Context())
		}
	}
	list[0].put(t, override("d.a", descriptors.OverrideDeny), time.Minute)
	for i, r := range list {
		r.look(t.Context())
		if r.resets != 2 {
			t.Errorf("replica %d was told of %d resets", i, r.resets)
		}
	}
}

func TestThereAreNotTooManyOverrides(t *testing.T) {
	list, _, _ := replicas(1)
	for i := range Max {
		list[0].put(t, override(fmt.Sprint("d.", i), descriptors.OverrideDeny), time.Minute)
	}
	if _, err := list[0].Put(t.Context(), override("d.more", descriptors.OverrideDeny), time.Minute); !errors.Is(err, ErrTooMany) {
		t.Errorf("one more: %v", err)
	}
	list[0].put(t, override("d.0", descriptors.OverrideShadow), time.Minute)
}

func TestTheOrderOfMatchesIsOfNoMatter(t *testing.T) {
	a, b := descriptors.Entry{Key: "a", Value: "1"}, descriptors.Entry{Key: "b", Value: "2"}
	one, other, third := override("d.a", "", a, b), override("d.a", "", b, a), override("d.a", "", a)
	if one.id() != other.id() || one.id() == third.id() {
		t.Errorf("the IDs are %s, %s and %s", one.id(), other.id(), third.id())
	}
}

func TestWhatCanNotBeUsedIsRefused(t *testing.T) {
	for _, text := range []string{"", "5", "5/", "/second", "5/fortnight", "-1/second", "5/0second", "4294967296/second", "5/99999999999second"} {
		var o Override
		if err := o.SetLimit(text); err == nil {
			t.Errorf("the limit %q is %s", text, o.Words())
		}
	}
	long := strings.Repeat("x", maxText+1)
	for _, o := range []Override{
		{}, override("", descriptors.OverrideDeny), override(long, descriptors.OverrideDeny), override("d.\xff", descriptors.OverrideDeny),
		override("d.a", descriptors.OverrideDeny, make([]descriptors.Entry, maxMatches+1)...),
	} {
		if o.Validate() == nil {
			t.Errorf("%+v is usable", o)
		}
	}
}

// FuzzNote is about notes of other replicas, which may be of another version, and about their way there and back.
func FuzzNote(f *testing.F) {
	f.Add(`{"domain":"d","rule":"d.a","kind":"limit","limit":"5/15minute","at":1}`, "d", "d.a", "k", "v\n")
	f.Add(`{"domain":"d","rule":"d.a","match":[{"Key":"k","Value":"v"}],"kind":"other"}`, "", "", "", "")
	f.Add(`{`, "d", "r", "\xff", "")
	f.Fuzz(func(t *testing.T, text, domain, rule, key, value string) {
		if o, err := parse("id", text); err == nil {
			if again, err := parse("id", o.text()); err != nil || again.text() != o.text() {
				t.Errorf("%s is read as %s, and that as %s, %v", text, o.text(), again.text(), err)
			}
		}
		o := Override{Override: descriptors.Override{ID: "id", Domain: domain, Rule: rule, Match: []descriptors.Entry{{Key: key, Value: value}}}}
		if o.Validate() != nil {
			return
		}
		again, err := parse("id", o.text())
		if err != nil || again.Domain != domain || again.Rule != rule || again.Match[0] != o.Match[0] || strings.Contains(o.text(), "\n") {
			t.Errorf("%+v comes back as %+v, %v", o, again, err)
		}
	})
}
