package redisstore

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// sender sends a command.
type sender interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// errTryAgain is a cluster's TRYAGAIN: while a slot moves from node to node, keys of a call can be on both.
var errTryAgain = errors.New("TRYAGAIN keys of the call are on their way to another node")

// nodes are the nodes of a cluster, where calls are redirected to. The client library could follow redirects by
// itself, but would also send again what timed out, and may have counted. A nil nodes has none.
type nodes struct {
	cluster *redis.ClusterClient

	mu       sync.Mutex
	clients  map[string]*redis.Client // by address
	template *redis.Options           // of a client that the cluster's own made
	own      []*redis.Client          // that were made here
}

// newClient makes a client for a node, for the cluster's client, and keeps it in mind.
func (n *nodes) newClient(o *redis.Options) *redis.Client {
	c := redis.NewClient(o)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.clients[o.Addr], n.template = c, o
	return c
}

// at is the client for a node.
func (n *nodes) at(addr string) *redis.Client {
	n.mu.Lock()
	defer n.mu.Unlock()
	if c := n.clients[addr]; c != nil || n.template == nil {
		return c
	}
	o := *n.template
	o.Addr = addr
	c := redis.NewClient(&o)
	n.clients[addr], n.own = c, append(n.own, c)
	return c
}

// redirect is where to send a command again that was answered with MOVED or ASK, or nil. Whatever failed, the
// cluster may have changed.
func (n *nodes) redirect(ctx context.Context, err error) sender {
	if n == nil {
		return nil
	}
	n.reload(ctx)
	words := strings.Fields(err.Error()) // MOVED slot host:port
	if len(words) != 3 || words[0] != "MOVED" && words[0] != "ASK" {
		return nil
	}
	c := n.at(words[2])
	switch {
	case c == nil:
		return nil
	case words[0] == "ASK":
		return asking{c}
	}
	return c
}

// reload has the cluster's client find out which node has which slots, soon.
func (n *nodes) reload(ctx context.Context) {
	if n != nil {
		n.cluster.ReloadState(ctx)
	}
}

func (n *nodes) close() error {
	if n == nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	var errs []error
	for _, c := range n.own {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// asking sends a command to a node that is about to get its slot.
type asking struct{ client *redis.Client }

// Process implements sender.
func (a asking) Process(ctx context.Context, cmd redis.Cmder) error {
	pipe := a.client.Pipeline()
	_ = pipe.Process(ctx, redis.NewStatusCmd(ctx, "ASKING"))
	_ = pipe.Process(ctx, cmd)
	_, _ = pipe.Exec(ctx) // each command has its own error
	return cmd.Err()
}
