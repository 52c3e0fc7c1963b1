package main

import (
	"bytes"
	"log/slog"
	"net"
	"net/http"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// greetingInterval is the shortest time between two lines about clients that make the same mistake.
const greetingInterval = time.Minute

// plainGRPC is gRPC without TLS. It tells of clients who speak something else, whom grpc-go hangs up on.
type plainGRPC struct {
	credentials.TransportCredentials
	log        *slog.Logger
	tls, http1 sparing
}

func newPlainGRPC(log *slog.Logger) *plainGRPC {
	return &plainGRPC{
		TransportCredentials: insecure.NewCredentials(), log: log,
		tls: sparing{interval: greetingInterval}, http1: sparing{interval: greetingInterval},
	}
}

// ServerHandshake implements credentials.TransportCredentials. It doesn't wait for the client, who may be a probe of the port.
func (p *plainGRPC) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	plain, info, err := p.TransportCredentials.ServerHandshake(c)
	if err != nil {
		return nil, nil, err
	}
	return &greeted{Conn: plain, look: p.look}, info, nil
}

// look is told how a client begins.
func (p *plainGRPC) look(client net.Addr, greeting []byte) {
	switch {
	case isTLS(greeting):
		p.tell(&p.tls, "a client speaks TLS to gRPC, which is plain", client,
			"--grpc-tls (GRPC_SERVER_USE_TLS), or no TLS in Envoy's cluster and no strict mTLS of a mesh here")
	case isHTTP1(greeting):
		p.tell(&p.http1, "a client speaks HTTP/1 to gRPC, which is HTTP/2", client,
			"write explicit_http_config: {http2_protocol_options: {}} into the HttpProtocolOptions of Envoy's cluster; probes and metrics are at --port (PORT)")
	}
}

func (p *plainGRPC) tell(lines *sparing, what string, client net.Addr, mend string) {
	if missed, due := lines.next(); due {
		p.log.Warn(what, "client", client.String(), "mend", mend, "more_since_last_line", missed)
	}
}

// isTLS tells whether a connection begins with a handshake of TLS.
func isTLS(greeting []byte) bool { return bytes.HasPrefix(greeting, []byte{0x16, 3}) }

// isHTTP1 tells whether a connection begins with a method of HTTP/1, as PRI, with which HTTP/2 begins, is none.
func isHTTP1(greeting []byte) bool {
	method, _, found := bytes.Cut(greeting, []byte(" "))
	return found && len(method) > 0 && len(bytes.Trim(method, "ABCDEFGHIJKLMNOPQRSTUVWXYZ")) == 0 && string(method) != "PRI"
}

// greeted is a connection whose first bytes are looked at, by the one goroutine that reads it.
type greeted struct {
	net.Conn
	look func(client net.Addr, greeting []byte) // nil once it has been called
}

// Read implements net.Conn.
func (g *greeted) Read(b []byte) (int, error) {
	n, err := g.Conn.Read(b)
	if g.look != nil && n > 0 {
		g.look(g.RemoteAddr(), b[:n])
		g.look = nil
	}
	return n, err
}

// tellOfGRPC tells of clients who begin HTTP/2, and hence mean gRPC, at a port of HTTP.
func (srv *server) tellOfGRPC(h http.Handler) http.Handler {
	lines := &sparing{interval: greetingInterval}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "PRI" {
			if missed, due := lines.next(); due {
				srv.log.Warn("a client calls gRPC at a port of HTTP", "client", r.RemoteAddr,
					"mend", "call "+srv.listeners.grpc.Addr().String(), "more_since_last_line", missed)
			}
		}
		h.ServeHTTP(w, r)
	})
}
