package proctest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Faults are what a Proxy does to replies: what the server sends, as it comes, in pieces that are mostly a reply each.
// The shares are from 0 to 1. The zero value does nothing.
type Faults struct {
	// Late is the share of replies that come later by Delay.
	Late  float64
	Delay time.Duration
	// Slice is the share of replies that come in slices of up to three bytes, with gaps in between.
	Slice float64
	// Truncate is the share of replies that end somewhere, after which the connection is cut.
	Truncate float64
	// Swap is the share of replies in which two bytes that follow each other are swapped.
	Swap float64
}

// gap is between the slices of a reply.
const gap = 200 * time.Microsecond

// Proxy forwards connections to a server, with faults. What it does to the n-th reply of the n-th connection depends
// on nothing but its seed. Any number of goroutines may use it.
type Proxy struct {
	// Addr is where it listens.
	Addr string

	t      testing.TB
	seed   uint64
	target atomic.Pointer[string]

	faults   atomic.Pointer[Faults]
	accepted atomic.Int64
	bytes    sync.RWMutex // held for reading while some are forwarded, for writing by Hold

	mu       sync.Mutex
	listener net.Listener // nil: connections are refused
	open     map[net.Conn]bool
}

// StartProxy starts a Proxy to target on a free loopback port. The test's end ends it.
func StartProxy(t testing.TB, target string, seed uint64) *Proxy {
	t.Helper()
	p := &Proxy{
		Addr: fmt.Sprintf("127.0.0.1:%d", FreePort(t)), t: t, seed: seed, open: map[net.Conn]bool{},
	}
	p.LeadTo(target)
	p.Set(Faults{})
	p.Accept()
	t.Cleanup(func() {
		p.Refuse()
		p.Cut()
	})
	return p
}

// URL is its address as --redis takes it.
func (p *Proxy) URL() string { return "redis://" + p.Addr }

// LeadTo has new connections lead to another server, as a name does that is given to another one.
func (p *Proxy) LeadTo(target string) { p.target.Store(&target) }

// Set changes what is done to replies from now on.
func (p *Proxy) Set(f Faults) { p.faults.Store(&f) }

// Accepted is how many connections were accepted so far.
func (p *Proxy) Accepted() int { return int(p.accepted.Load()) }

// Hold stops all bytes in both directions until Release. Connections are accepted.
func (p *Proxy) Hold() { p.bytes.Lock() }

// Release lets the bytes go on that Hold stopped.
func (p *Proxy) Release() { p.bytes.Unlock() }

// Refuse has new connections refused, until Accept.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		_ = p.listener.Close() // its port is all that there is to it
		p.listener = nil
	}
}

// Accept has new connections accepted, as in the beginning.
func (p *Proxy) Accept() {
	p.t.Helper()
	l, err := net.Listen("tcp", p.Addr)
	if err != nil {
		p.t.Errorf("a proxy can't listen: %v", err)
		return
	}
	p.mu.Lock()
	p.listener = l
	p.mu.Unlock()
	go p.serve(l)
}

// Cut ends all connections at once, as a crash does.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.open {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // it may be closed
		}
		_ = c.Close()
	}
	clear(p.open)
}

func (p *Proxy) serve(l net.Listener) {
	for {
		client, err := l.Accept()
		if err != nil {
			return // refused from now on
		}
		n := p.accepted.Add(1)
		server, err := net.Dial("tcp", *p.target.Load())
		if err != nil {
			_ = client.Close() // the server's absence, as the client sees it
			continue
		}
		p.mu.Lock()
		p.open[client], p.open[server] = true, true
		p.mu.Unlock()
		go p.forward(client, server, func(b []byte) bool { return p.write(server, b) })
		random := rand.New(rand.NewPCG(p.seed, uint64(n)))
		go p.forward(server, client, func(b []byte) bool { return p.reply(client, b, random) })
	}
}

// forward passes on what comes, until either end has gone or pass has enough.
func (p *Proxy) forward(from, to net.Conn, pass func([]byte) bool) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 && !pass(buffer[:n]) || err != nil {
			break
		}
	}
	_, _ = from.Close(), to.Close() // either may be closed
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, from)
	delete(p.open, to)
}

// reply passes a reply on with its faults. All dice are cast each time, so that one fault doesn't move another.
func (p *Proxy) reply(to net.Conn, b []byte, random *rand.Rand) bool {
	f := p.faults.Load()
	late, slice, cut, swap := random.Float64(), random.Float64(), random.Float64(), random.Float64()
	place := random.Float64()
	if late < f.Late {
		<-time.After(f.Delay)
	}
	if i := int(place * float64(len(b)-1)); swap < f.Swap && len(b) > 1 {
		b[i], b[i+1] = b[i+1], b[i]
	}
	if cut < f.Truncate {
		p.write(to, b[:int(place*float64(len(b)))])
		return false
	}
	if slice < f.Slice {
		return p.slices(to, b, random)
	}
	return p.write(to, b)
}

func (p *Proxy) slices(to net.Conn, b []byte, random *rand.Rand) bool {
	for len(b) > 0 {
		n := min(1+random.IntN(3), len(b))
		if !p.write(to, b[:n]) {
			return false
		}
		b = b[n:]
		<-time.After(gap)
	}
	return true
}

func (p *Proxy) write(to net.Conn, b []byte) bool {
	p.bytes.RLock()
	defer p.bytes.RUnlock()
	_, err := to.Write(b)
	return err == nil
}
