// Package statsd sends what pkg/metrics counts to a statsd or to DogStatsD, by the names of the service that this one
// replaces. It asks for numbers now and then: what counts them doesn't know of it, and never waits for it.
package statsd

import (
	"context"
	"errors"
	"net"
	"os"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/metrics"
)

const (
	// patience is how long opening a connection, and writing to it, may take each.
	patience = time.Second
	// maxPacket is what fits a datagram on an Ethernet.
	maxPacket = 1432

	udp = "udp"
)

// Options are a Sender's settings.
type Options struct {
	// Address is where the statsd listens: host:port. The host is looked up for each connection.
	Address string
	// Network is tcp or udp. DogStatsD has udp.
	Network string
	// Interval is how often numbers are sent.
	Interval time.Duration
	// Tags are added to all numbers.
	Tags Tags
	// Stats are the numbers; it is called on the goroutine of Run.
	Stats func() []metrics.Stat
	// Changed is told when sending begins to fail, by the error, and when it begins to work, by nil; the first time, too.
	// It is called on the goroutine of Run.
	Changed func(error)
}

// Sender sends numbers to one statsd: of counters what was added since they were last sent, gauges as they are, and of
// times what became of them in each of their ranges. Each time it opens a connection. Where there is none, nothing is lost:
// it is part of what is sent next. What a connection loses is lost.
type Sender struct {
	options Options
	writer  writer
	deltas  deltas
	state   state
}

// writer writes samples to a connection in packets.
type writer interface {
	write(net.Conn, []sample) error
}

// state is what Changed was told last.
type state int

const (
	unknown state = iota
	working
	failing
)

// New returns a Sender for a plain statsd. It has no tags: they become part of names, each as .__name=value.
func New(o Options) *Sender {
	return &Sender{options: o, writer: &plain{suffix: o.Tags.suffix()}}
}

// NewDog returns a Sender for DogStatsD. The first mogrifier whose pattern a name matches rewrites it.
func NewDog(o Options, mogrifiers []*Mogrifier) *Sender {
	o.Network = udp
	return &Sender{options: o, writer: &dog{tags: o.Tags.list(), mogrifiers: mogrifiers}}
}

// Run sends numbers until ctx ends, and then once more. It needs no more than a few seconds for that.
func (s *Sender) Run(ctx context.Context) {
	tick := time.NewTicker(s.options.Interval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.flush()
		case <-ctx.Done():
			s.flush()
			return
		}
	}
}

func (s *Sender) flush() {
	err := s.send()
	now := working
	if err != nil {
		now = failing
	}
	if now != s.state {
		s.state = now
		s.options.Changed(err)
	}
}

func (s *Sender) send() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, s.options.Network, s.options.Address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // nobody tells whether all was read
	if err := conn.SetWriteDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if err := s.writer.write(conn, s.deltas.take(s.options.Stats())); err != nil {
		return err
	}
	if s.options.Network == udp {
		return refused(conn)
	}
	return nil
}

// refused waits a moment for a datagram to be refused: nothing else tells that nobody listens. The moment must not be over before
// Read looks, on a busy machine either.
func refused(conn net.Conn) error {
	if err := conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		return err
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return nil
}
