package main

import (
	"context"
	"fmt"
	"io"
	"net"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
)

// Noop is the subcommand that serves the no-op.
type Noop struct {
	Listen string `help:"Address to listen on. The address in use is printed in one line." default:"127.0.0.1:0"`
}

// Run serves until ctx ends.
func (n *Noop) Run(ctx context.Context, out io.Writer) error {
	listener, err := net.Listen("tcp", n.Listen)
	if err != nil {
		return fmt.Errorf("noop: %w", err)
	}
	server := newNoopServer()
	defer context.AfterFunc(ctx, server.Stop)()
	fmt.Fprintln(out, listener.Addr())
	if err := server.Serve(listener); err != nil {
		return fmt.Errorf("noop: %w", err)
	}
	return nil
}

// newNoopServer takes grpc-go as it comes: no option that would make the floor lower or higher than what anybody gets.
func newNoopServer() *grpc.Server {
	server := grpc.NewServer()
	ratelimit.RegisterRateLimitServiceServer(server, noopService{})
	return server
}

// noopService decides nothing: it answers OK with one bare status a descriptor, the least that Envoy accepts.
type noopService struct {
	ratelimit.UnimplementedRateLimitServiceServer
}

func (noopService) ShouldRateLimit(_ context.Context, request *ratelimit.RateLimitRequest) (*ratelimit.RateLimitResponse, error) {
	statuses := make([]*ratelimit.RateLimitResponse_DescriptorStatus, len(request.GetDescriptors()))
	for i := range statuses {
		statuses[i] = &ratelimit.RateLimitResponse_DescriptorStatus{Code: ratelimit.RateLimitResponse_OK}
	}
	return &ratelimit.RateLimitResponse{OverallCode: ratelimit.RateLimitResponse_OK, Statuses: statuses}, nil
}
