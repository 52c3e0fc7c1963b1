package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/envoy-rls/envoy-rls/lua"
)

// Notes reads the notes that all processes share. It asks for one value, and as long as that is the known version returns
// it and calls nobody; else it calls yield with each note that has not ended, and how much time it has left by the server's
// clock, and returns the new version.
func (s *Store) Notes(ctx context.Context, known string, yield func(name, text string, left time.Duration)) (version string, err error) {
	cmd := redis.NewStringCmd(ctx, "GET", s.notesKey())
	if err := s.send(ctx, cmd); err != nil && !errors.Is(err, redis.Nil) {
		return known, fmt.Errorf("redis: reading notes: %w", err)
	}
	if cmd.Val() == known {
		return known, nil
	}
	now, lines, err := s.notes(ctx, "", "", 0)
	if err != nil {
		return known, fmt.Errorf("redis: reading notes: %w", err)
	}
	for line := range strings.Lines(lines) {
		ends, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		name, text, _ := strings.Cut(rest, " ")
		at, err := strconv.ParseInt(ends, 10, 64)
		if err == nil && at > now {
			yield(name, text, time.Duration(at-now)*time.Millisecond)
		}
	}
	return lines, nil
}

// Note has a text noted by a name for all processes, in place of one that is there, for a lifetime of whole milliseconds; 0
// takes it away. A name has no white space, a text is one line; what is noted in all should be small.
func (s *Store) Note(ctx context.Context, name, text string, lifetime time.Duration) error {
	if _, _, err := s.notes(ctx, name, text, lifetime); err != nil {
		return fmt.Errorf("redis: noting: %w", err)
	}
	return nil
}

// notesKey is no counter's: no counter's name begins with a letter.
func (s *Store) notesKey() string { return s.prefixes[0] + "notes" }

// notes runs the script, and returns the time, in ms, and the notes' lines.
func (s *Store) notes(ctx context.Context, name, text string, lifetime time.Duration) (now int64, lines string, err error) {
	cmd := redis.NewStringSliceCmd(ctx, "EVAL", lua.Notes, 1, s.notesKey(), name, text, lifetime.Milliseconds())
	if err := s.send(ctx, cmd); err != nil {
		return 0, "", err
	}
	if len(cmd.Val()) != 2 {
		return 0, "", errReply
	}
	now, err = strconv.ParseInt(cmd.Val()[0], 10, 64)
	return now, cmd.Val()[1], err
}

// send sends a command to the server, and to where it is redirected.
func (s *Store) send(ctx context.Context, cmd redis.Cmder) error {
	var to sender = s.client
	for sends := 1; ; sends++ {
		err := to.Process(ctx, cmd)
		if err == nil || sends == maxSends || errors.Is(err, redis.Nil) {
			return err
		}
		if to = s.nodes.redirect(ctx, err); to == nil {
			return err
		}
		cmd.SetErr(nil)
	}
}
