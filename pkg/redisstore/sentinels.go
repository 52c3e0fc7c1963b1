package redisstore

import (
	"cmp"
	"context"

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
