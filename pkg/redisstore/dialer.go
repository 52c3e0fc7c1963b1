package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"net"
	"time"

	"golang.org/x/time/rate"
)

// How often connections are opened. A call that is late costs its connection, since the reply may yet come; a server
// that is late for a moment must not get a storm of handshakes on top.
const (
	dialsPerSecond = 10
	dialsAtOnce    = 20
	dialJitter     = 10 * time.Millisecond
	dialTimeout    = 5 * time.Second
	keepAlive      = 30 * time.Second
)

// errManyDials is for a connection that would have to wait for longer than its call.
var errManyDials = errors.New("too many connections were opened of late")

type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// dialer opens connections, not too many at a time. Any number of goroutines may use it.
type dialer struct {
	tls   *TLS // nil: none
	limit *rate.Limiter
}

func newDialer(t *target) *dialer {
	d := &dialer{limit: rate.NewLimiter(dialsPerSecond, dialsAtOnce)}
	if t.tls {
		d.tls = &t.options.TLS
	}
	return d
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
	plain := net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}
	if d.tls == nil {
		return plain.DialContext(ctx, network, addr)
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	config, err := d.tls.config(host)
	if err != nil {
		return nil, err
	}
	return (&tls.Dialer{NetDialer: &plain, Config: config}).DialContext(ctx, network, addr)
}
