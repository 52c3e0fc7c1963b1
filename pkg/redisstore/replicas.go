package redisstore

import (
	"context"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/envoy-rls/envoy-rls/lua"
)

// Replica is one of those that share a server.
type Replica struct {
	// Name is its own, without a space. Two replicas must not have one name.
	Name string
	// Rules names those that it goes by, as Ruleset.Hash does, or is "" where that isn't known.
	Rules string
}

// Heartbeat tells the server that a replica is alive, and returns all that told so within the last lifetime, by the
// server's clock, each once, in no order.
func (s *Store) Heartbeat(ctx context.Context, self Replica, lifetime time.Duration) ([]Replica, error) {
	key := s.prefixes[0] + "replicas" // no counter's name begins with a letter
	member := strings.TrimSuffix(self.Name+" "+self.Rules, " ")
	members, err := redis.NewScript(lua.Replicas).Run(ctx, s.client, []string{key}, member, lifetime.Milliseconds()).StringSlice()
	if err != nil {
		return nil, err
	}
	last := map[string]string{} // one that has new rules is there under the old ones, too, for a while
	for _, m := range members {
		name, rules, _ := strings.Cut(m, " ")
		last[name] = rules
	}
	list := make([]Replica, 0, len(last))
	for name, rules := range last {
		list = append(list, Replica{name, rules})
	}
	return list, nil
}
