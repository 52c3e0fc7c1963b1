package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// failover makes a client of the master that sentinels know.
func (t *target) failover(dial dialFunc) *redis.Client {
	o := t.single(dial)
	f := &redis.FailoverOptions{
		MasterName: t.master, SentinelAddrs: t.addrs,
		DB: o.DB, CredentialsProviderContext: o.CredentialsProviderContext, Dialer: dial, DialTimeout: o.DialTimeout,
		PoolSize: o.PoolSize, ConnMaxLifetime: o.ConnMaxLifetime, MaxRetries: o.MaxRetries, DialerRetries: o.DialerRetries,
		ContextTimeoutEnabled: o.ContextTimeoutEnabled, DisableIdentity: o.DisableIdentity, Protocol: o.Protocol,
	}
	c := redis.NewFailoverClient(f)
	f.OnConnect = t.greetSentinel // from here on, f is for connections to sentinels only
	return c
}

// greetSentinel begins a connection to a sentinel. The client library would have it know one password for good.
func (t *target) greetSentinel(ctx context.Context, c *redis.Conn) error {
	username, password, err := credentials(t.options.SentinelAuth, t.options.SentinelFile)
	if err != nil || password == "" {
		return err
	}
	return c.AuthACL(ctx, cmp.Or(username, "default"), password).Err()
}

// pingRefusal is refusal of a PING, before which sentinels are asked for the master.
func (t *target) pingRefusal(ctx context.Context, err error) error {
	var answer redis.Error
	switch {
	case t.kind != Sentinel || !errors.As(err, &answer) || passing(err):
	case errors.Is(err, redis.Nil):
		return &Unsupported{fmt.Sprintf("the sentinels know no master %q%s", t.master, t.othersKnown(ctx))}
	case unknown(err, "sentinel"):
		return &Unsupported{"it is no sentinel; write redis://host:port, or redis+cluster://host:port,host:port of a cluster"}
	case strings.Contains(err.Error(), "all sentinels"): // the client library's words
		return &Unsupported{"the sentinels refuse to tell the master: " + answer.Error()}
	}
	return refusal("PING", err)
}

// othersKnown says which masters a sentinel knows, the first that says so.
func (t *target) othersKnown(ctx context.Context) string {
	dial := newDialer(t).dial
	for _, addr := range t.addrs {
		o := t.single(dial)
		o.Addr, o.DB, o.CredentialsProviderContext, o.OnConnect = addr, 0, nil, t.greetSentinel
		c := redis.NewSentinelClient(o)
		masters, err := c.Masters(ctx).Result()
		_ = c.Close() // it was asked
		if err == nil && len(masters) > 0 {
			return "; they know " + strings.Join(names(masters), ", ")
		}
	}
	return ""
}

// names are those of masters, each of which is a list of words and what they stand for.
func names(masters []any) (list []string) {
	for _, m := range masters {
		if words, ok := m.([]any); ok {
			if i := slices.Index(words, any("name")); i >= 0 && i+1 < len(words) {
				list = append(list, fmt.Sprint(words[i+1]))
			}
		}
	}
	return list
}
