package xds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/envoy-rls/envoy-rls/pkg/certs"
	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
)

// Options are a Client's settings. All functions are called on Run's goroutine.
type Options struct {
	// Server is host:port, or a target as gRPC names them.
	Server string
	// NodeID and Metadata tell the control plane who asks.
	NodeID   string
	Metadata map[string]string
	// Headers are sent with the stream.
	Headers map[string]string
	// TLS secures connections; nil leaves them plain.
	TLS *certs.Client
	// MaxMessage is the longest message that is taken, in bytes.
	MaxMessage int
	// Keepalive is how long a connection may be silent before the server is asked whether it is there. A server that
	// doesn't answer within KeepaliveTimeout is left. gRPC takes less than 10 s for 10 s.
	Keepalive, KeepaliveTimeout time.Duration
	Backoff                     Backoff

	// Accept puts a set in force, or returns why it can't be: problems with an Error among them.
	Accept func(*Set) []descriptors.Problem
	// Refused is told of each set that was refused, once as long as its version and its problems are the same.
	Refused func(version string, problems []descriptors.Problem)
	// Connected is told of each stream that was opened.
	Connected func()
	// Lost is told why a stream ended or could not be opened, and when the next one will be tried.
	Lost func(err error, retry time.Duration)
}

// Backoff says how long to wait before a new stream.
type Backoff struct {
	// Initial is the wait after a stream that brought something.
	Initial time.Duration
	// Connect is the wait after one that didn't. It doubles from one to the next, up to Max.
	Connect, Max time.Duration
	// Spread is the part of a wait by which it is longer or shorter at random, from 0 to 1, so that not all clients of
	// a server that comes back arrive at once.
	Spread float64
}

// after is the wait after so many streams in a row that brought nothing.
func (b *Backoff) after(failures int) time.Duration {
	wait := b.Initial
	if failures > 0 {
		wait = b.Connect
		for ; failures > 1 && wait < b.Max; failures-- {
			wait *= 2
		}
	}
	wait += time.Duration(float64(wait) * b.Spread * (2*rand.Float64() - 1))
	return min(wait, b.Max)
}

// Client keeps a stream to a control plane open.
type Client struct {
	o    Options
	node *core.Node

	accepted string // the version in force
	refused  refusal
}

// refusal is what was last refused.
type refusal struct {
	version, reason string
	repeats         int // how often it came again
}

// New returns a Client that does nothing before Run.
func New(o Options) *Client {
	fields := map[string]*structpb.Value{}
	for k, v := range o.Metadata {
		fields[k] = structpb.NewStringValue(v)
	}
	return &Client{o: o, node: &core.Node{
		Id: o.NodeID, Metadata: &structpb.Struct{Fields: fields}, UserAgentName: "envoy-rls",
	}}
}

// Run gets sets until ctx ends. Call it once.
func (c *Client) Run(ctx context.Context) {
	for failures := 0; ; {
		answered, err := c.stream(ctx)
		if ctx.Err() != nil {
			return
		}
		failures++
		if answered {
			failures = 0
		}
		wait := c.o.Backoff.after(failures)
		c.o.Lost(err, wait)
		if !sleep(ctx, wait) {
			return
		}
	}
}

// sleep returns false if ctx ends before the time has passed.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// stream opens a stream, and answers what it brings until it ends. Each has a connection of its own, so that files of
// TLS are read anew.
func (c *Client) stream(ctx context.Context) (answered bool, err error) {
	conn, err := c.dial()
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close() }() // nothing can be done about an error
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(ctx, metadata.New(c.o.Headers)))
	defer cancel()
	s, err := discovery.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err != nil {
		return false, plain(err)
	}
	c.o.Connected()
	for ack := c.request(""); ; {
		if err := s.Send(ack); err != nil && !errors.Is(err, io.EOF) { // then Recv says why it ended
			return answered, plain(err)
		}
		response, err := s.Recv()
		if err != nil {
			return answered, plain(err)
		}
		answered = true
		if ack, err = c.answer(ctx, response); err != nil {
			return true, err
		}
	}
}

// plain is a gRPC error without gRPC's words around it.
func plain(err error) error {
	s := status.Convert(err)
	switch {
	case s.Code() == codes.ResourceExhausted && strings.Contains(s.Message(), "larger than max"):
		return fmt.Errorf("%w: %s", ErrMessageTooLong, s.Message())
	case errors.Is(err, io.EOF):
		return errors.New("the control plane ended the stream")
	case s.Code() == codes.Unavailable:
		return errors.New(s.Message())
	}
	return fmt.Errorf("%s: %s", s.Code(), s.Message())
}

// ErrMessageTooLong is the error of a stream that brought more than Options.MaxMessage.
var ErrMessageTooLong = errors.New("the message is too long")

// request is an ACK of the version in force: the first request of a stream if nonce is "".
func (c *Client) request(nonce string) *discovery.DiscoveryRequest {
	return &discovery.DiscoveryRequest{Node: c.node, TypeUrl: typeURL, VersionInfo: c.accepted, ResponseNonce: nonce}
}

// answer puts a response in force and returns its ACK, or its NACK.
func (c *Client) answer(ctx context.Context, r *discovery.DiscoveryResponse) (*discovery.DiscoveryRequest, error) {
	set, problems := read(r)
	if !descriptors.HasErrors(problems) {
		problems = c.o.Accept(set)
	}
	if !descriptors.HasErrors(problems) {
		c.accepted, c.refused = r.GetVersionInfo(), refusal{}
		return c.request(r.GetNonce()), nil
	}
	reason := words(problems)
	now := refusal{version: r.GetVersionInfo(), reason: reason}
	if now.version == c.refused.version {
		// Control planes send at once again what was refused: it must not keep both busy.
		now.repeats = c.refused.repeats + 1
		if !sleep(ctx, min(time.Second<<min(now.repeats-1, 8), maxRepeatWait)) {
			return nil, ctx.Err()
		}
	}
	if now.version != c.refused.version || reason != c.refused.reason {
		c.o.Refused(now.version, problems)
	}
	c.refused = now
	nack := c.request(r.GetNonce())
	nack.ErrorDetail = &rpcstatus.Status{Code: int32(codes.InvalidArgument), Message: reason}
	return nack, nil
}

// maxRepeatWait bounds by how much a set is late that takes the place of a refused one.
const maxRepeatWait = 8 * time.Second

// maxReason bounds the text of a NACK, in bytes.
const maxReason = 4096

// words are the errors among problems, for the control plane. They are valid UTF-8.
func words(problems []descriptors.Problem) string {
	var b strings.Builder
	for _, p := range problems {
		if p.Severity != descriptors.Error {
			continue
		}
		if b.Len() > 0 {
			b.WriteString("; ")
		}
		if text := p.String(); b.Len()+len(text) <= maxReason {
			b.WriteString(text)
			continue
		}
		b.WriteString("and more")
		break
	}
	return strings.ToValidUTF8(b.String(), "?")
}
