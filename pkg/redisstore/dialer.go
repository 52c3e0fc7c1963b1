package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"net"
	"syscall"
	"time"

	"golang.org/x/time/rate"
)

// How often connections are opened. A call without a reply costs its connection; a server that stands still for a moment
// must not get a storm of handshakes on top.
const (
	dialsPerSecond = 10
	dialsAtOnce    = 20
	dialJitter     = 10 * time.Millisecond
	dialTimeout    = 5 * time.Second
	keepAlive      = 30 * time.Second
)

// patience is how much longer than its callers a call waits for its reply. A connection on which a reply may yet come is
// of no use to others, and there would soon be none left if each late reply cost one.
const patience = 50 * time.Millisecond

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
	c, err := d.open(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	if socket, ok := c.(syscall.Conn); ok {
		return patientSocket{patient{c}, socket}, nil
	}
	return patient{c}, nil
}

func (d *dialer) open(ctx context.Context, network, addr string) (net.Conn, error) {
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

// patient is a connection that waits for replies with patience.
type patient struct{ net.Conn }

// SetReadDeadline implements net.Conn.
func (p patient) SetReadDeadline(t time.Time) error {
	if !t.IsZero() {
		t = t.Add(patience)
	}
	return p.Conn.SetReadDeadline(t)
}

// NetConn is the connection that is patient, as the client library finds the socket below TLS.
func (p patient) NetConn() net.Conn { return p.Conn }

// patientSocket is one whose socket can be looked at, by which it is found out that a server has closed it.
type patientSocket struct {
	patient
	syscall.Conn
}
