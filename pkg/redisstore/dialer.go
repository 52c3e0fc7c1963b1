package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/time/rate"
)

// How often connections to a server are opened. A call without a reply costs its connection; a server that stands still for a moment
// must not get a storm of handshakes on top.
const (
	dialsPerSecond = 10
	dialsAtOnce    = 20
	dialJitter     = 10 * time.Millisecond
	keepAlive      = 30 * time.Second
)

// patience is how much longer than its callers a call waits for its reply. A connection on which a reply may yet come is
// of no use to others, and there would soon be none left if each late reply cost one.
const patience = 50 * time.Millisecond

// errManyDials is for a connection that would have to wait for longer than its call.
var errManyDials = errors.New("too many connections were opened of late")

type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// dialer opens connections, not too many at a time to a server: one that is gone, and tried again and again, must not hold
// up those to others. Any number of goroutines may use it.
type dialer struct {
	tls     *TLS   // nil: none
	host    string // of a node that doesn't know its own: the only one of its cluster
	timeout time.Duration

	mu     sync.Mutex
	limits map[string]*rate.Limiter // by address
}

func newDialer(t *target) *dialer {
	d := &dialer{timeout: t.options.DialTimeout, limits: map[string]*rate.Limiter{}}
	if t.tls {
		d.tls = &t.options.TLS
	}
	if t.kind == Cluster {
		d.host, _, _ = net.SplitHostPort(t.addrs[0])
	}
	return d
}

// dial waits for its turn, if ctx grants the time.
func (d *dialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if port, noHost := strings.CutPrefix(addr, ":"); noHost {
		addr = net.JoinHostPort(d.host, port)
	}
	if limit := d.limit(addr); !limit.Allow() {
		if limit.Wait(ctx) != nil {
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
	return lookedAt(patient{c}), nil
}

// maxLimits bounds the addresses that are known. Servers that come and go leave theirs.
const maxLimits = 1024

// limit is how often a server may be dialled.
func (d *dialer) limit(addr string) *rate.Limiter {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.limits[addr]
	if l == nil {
		if len(d.limits) == maxLimits {
			clear(d.limits)
		}
		l = rate.NewLimiter(dialsPerSecond, dialsAtOnce)
		d.limits[addr] = l
	}
	return l
}

func (d *dialer) open(ctx context.Context, network, addr string) (net.Conn, error) {
	plain := net.Dialer{Timeout: d.timeout, KeepAlive: keepAlive}
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

// lookedAt has the client library look at a connection before it uses it again.
func lookedAt(p patient) net.Conn {
	if socket, ok := p.Conn.(syscall.Conn); ok {
		return patientSocket{p, socket}
	}
	if secured, ok := p.Conn.(*tls.Conn); ok {
		if socket, ok := secured.NetConn().(syscall.Conn); ok {
			return securedSocket{p, socket}
		}
	}
	return p
}

// patientSocket is one whose socket can be looked at, by which it is found out that a server has closed it.
type patientSocket struct {
	patient
	syscall.Conn
}

// securedSocket is a patientSocket with TLS in between.
type securedSocket struct {
	patient
	socket syscall.Conn
}

// ticketTime is how long it may take to read what has come. Where a server has hung up, or said more than it was asked, it
// takes none.
const ticketTime = time.Millisecond

var errUnasked = errors.New("the server has said what it wasn't asked")

// SyscallConn implements syscall.Conn. The error is for a connection that is of no use any more. What has come unasked on one
// that is may be a ticket for a later session, which the library would take for the end: it is read here.
func (s securedSocket) SyscallConn() (syscall.RawConn, error) {
	raw, err := s.socket.SyscallConn()
	if err != nil || !readable(raw) {
		return raw, err
	}
	if err := s.Conn.SetReadDeadline(time.Now().Add(ticketTime)); err != nil {
		return nil, err
	}
	switch _, err := s.Conn.Read(make([]byte, 1)); {
	case err == nil:
		return nil, errUnasked
	case !errors.Is(err, os.ErrDeadlineExceeded):
		return nil, err
	}
	return raw, s.Conn.SetReadDeadline(time.Time{})
}

// readable tells whether something has come, if only the end.
func readable(raw syscall.RawConn) bool {
	var come error
	err := raw.Read(func(fd uintptr) bool {
		_, _, come = syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		return true
	})
	return err == nil && !errors.Is(come, syscall.EAGAIN)
}
