package xds

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

// A host that is gone is noticed by TCP: gRPC's own pings, which notice a process that hangs, must be rare, since
// servers that were not told otherwise cut connections that are pinged more than once in five minutes.
const (
	tcpIdle     = 15 * time.Second
	tcpInterval = 5 * time.Second
	tcpProbes   = 4
)

// dial makes a connection, which opens itself when it is used.
func (c *Client) dial() (*grpc.ClientConn, error) {
	secured := insecure.NewCredentials()
	if c.o.TLS != nil {
		config, err := c.o.TLS.Config("")
		if err != nil {
			return nil, err
		}
		secured = credentials.NewTLS(config)
	}
	dialer := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: tcpIdle, Interval: tcpInterval, Count: tcpProbes}}
	return grpc.NewClient(c.o.Server,
		grpc.WithTransportCredentials(secured),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", addr)
		}),
		grpc.WithDisableServiceConfig(),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: c.o.Keepalive, Timeout: c.o.KeepaliveTimeout}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(c.o.MaxMessage)),
	)
}
