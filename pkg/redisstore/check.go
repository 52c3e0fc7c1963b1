package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Unsupported is Check's error for a server that answers, and that can't be used.
type Unsupported struct {
	// Text says what the server refuses.
	Text string
}

// Error implements error.
func (u *Unsupported) Error() string { return u.Text }

// selfTest tries what the script needs, in ways that are known to differ between servers.
const selfTest = `
local t = redis.call('TIME')
local packed = struct.pack('<HBi8', 7, 8, -2^52)
local a, b, c = struct.unpack('<HBi8', packed)
if #packed ~= 11 or a ~= 7 or b ~= 8 or c ~= -2^52 then return 'struct' end
if string.format('%d', 2^52) ~= '4503599627370496' then return 'format' end
if #t ~= 2 then return 'TIME' end
return 'ok'`

// Check asks the server whether it can be used, and loads the script. The error is *Unsupported if the
// server answered that it can't, and any other if it didn't answer.
func (s *Store) Check(ctx context.Context) error {
	if err := s.client.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("redis: PING: %w", s.target.pingRefusal(ctx, err))
	}
	if err := s.checkMode(ctx); err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	v, err := s.client.Eval(ctx, selfTest, nil).Text()
	if err != nil {
		return fmt.Errorf("redis: trying a script: %w", refusal("scripts (EVAL) that call TIME", err))
	}
	if v != "ok" {
		return fmt.Errorf("redis: trying a script: %w", &Unsupported{"its Lua differs in " + v})
	}
	if err := s.client.ScriptLoad(ctx, s.text).Err(); err != nil {
		return fmt.Errorf("redis: loading the script: %w", refusal("SCRIPT LOAD", err))
	}
	for _, l := range s.lanes {
		if _, err := l.combiner.decide(ctx, l.trial(), checkTimeout); err != nil {
			return fmt.Errorf("redis: trying to count: %w", refusal("to count under the keys "+l.prefix+"*", err))
		}
	}
	return s.checkTags(ctx)
}

// checkMode tells a server that is set up otherwise than it is asked to be.
func (s *Store) checkMode(ctx context.Context) error {
	switch mode := s.info(ctx, "server", "redis_mode"); {
	case mode == "sentinel":
		return &Unsupported{"it is a sentinel; write redis+sentinel://host:26379/master"}
	case mode == "cluster" && s.target.kind != Cluster:
		return &Unsupported{"it is a node of a cluster; write redis+cluster://host:port,host:port"}
	}
	return nil
}

// checkTags notes over how many tags counters are spread, or compares with what was noted: processes that differ would
// not share counters.
func (s *Store) checkTags(ctx context.Context) error {
	made, err := s.mark(ctx)
	if err != nil {
		return fmt.Errorf("redis: noting the number of tags: %w", refusal("SET", err))
	}
	if s.marked.Swap(true) && made {
		s.lost.Store(true)
	}
	own := strconv.Itoa(len(s.prefixes))
	noted, err := s.client.Get(ctx, s.tagsKey).Result()
	if err != nil {
		return fmt.Errorf("redis: reading the number of tags: %w", refusal("GET", err))
	}
	if noted != own {
		return fmt.Errorf("redis: %w", &Unsupported{fmt.Sprintf(
			"its counters are spread over %s tags, and this process would look for them under %s; "+
				"all must have the same number, or another key prefix", noted, own)})
	}
	return nil
}

// Mark notes in the server over how many tags counters are spread, unless that is noted already. After a Check that
// has, lost tells that the server has since lost what it held, once: also if a later Check has noted it again.
func (s *Store) Mark(ctx context.Context) (lost bool, err error) {
	lost, err = s.mark(ctx)
	return s.lost.Swap(false) || lost, err
}

func (s *Store) mark(ctx context.Context) (made bool, err error) {
	return s.client.SetNX(ctx, s.tagsKey, strconv.Itoa(len(s.prefixes)), 0).Result()
}

// checkTimeout bounds Check's try at counting: whether the server can count is asked, not how fast.
const checkTimeout = 2 * time.Second

// refusal tells a server's refusal of what from a server that doesn't answer.
func refusal(what string, err error) error {
	var answer redis.Error
	switch {
	case !errors.As(err, &answer) || passing(err):
		return err
	case strings.Contains(err.Error(), "cluster support disabled"), unknown(err, "cluster"):
		return &Unsupported{"it is no cluster; write redis://host:port, or redis+sentinel://host:26379/master of sentinels"}
	}
	return &Unsupported{fmt.Sprintf("it refuses %s: %s", what, err)}
}

// unknown tells whether a server doesn't know a command.
func unknown(err error, command string) bool {
	_, rest, found := strings.Cut(err.Error(), "unknown command ")
	return found && strings.HasPrefix(strings.TrimLeft(rest, "'`"), command)
}

// passing tells whether a server's error will go away by itself.
func passing(err error) bool {
	for _, prefix := range []string{"LOADING", "BUSY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "READONLY", "OOM", "MISCONF",
		"NOREPLICAS"} {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	return strings.Contains(err.Error(), "max number of clients reached")
}

// Version is the server's version, or "" if it doesn't tell.
func (s *Store) Version(ctx context.Context) string { return s.info(ctx, "server", "redis_version") }

// EvictionPolicy is the server's maxmemory-policy, or "" if it doesn't tell. Under one of allkeys-* it drops counters,
// whose limits then begin anew, when its memory is full.
func (s *Store) EvictionPolicy(ctx context.Context) string {
	return s.info(ctx, "memory", "maxmemory_policy")
}

// info is a line of INFO, or "".
func (s *Store) info(ctx context.Context, section, name string) string {
	text, err := s.client.Info(ctx, section).Result()
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(text, name+":")
	value, _, _ := strings.Cut(rest, "\r\n")
	return value
}
