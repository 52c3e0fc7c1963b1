package redisstore

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"
)

// How often connections are opened. A call that is late costs its connection, since the reply may yet come; a server
// that is late for a moment must not get a storm of handshakes on top.
const (
	dialsPerSecond = 10
	dialsAtOnce    = 20
	dialJitter     = 10 * time.Millisecond
)

// errManyDials is for a connection that would have to wait for longer than its call.
var errManyDials = errors.New("too many connections were opened of late")

// dialer opens connections, not too many at a time. Any number of goroutines may use it.
type dialer struct {
	open  func(ctx context.Context, network, addr string) (net.Conn, error)
	limit *rate.Limiter
}

func newDialer(o *redis.Options) *dialer {
	return &dialer{open: redis.NewDialer(o), limit: rate.NewLimiter(dialsPerSecond, dialsAtOnce)}
}

// dial waits for its turn, if ctx grants the time.
func (d *dialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if !d.limit.Allow() {
		if d.limit.Wait(ctx) != nil {
			return nil, errManyDials
		}
		select {
		case <-time.After(rand.N(dialJitter)):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return d.open(ctx, network, addr)
}
