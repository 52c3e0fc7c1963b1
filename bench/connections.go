package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// transport carries callers' requests to a server. Any number of callers may call at once.
type transport interface {
	call(ctx context.Context, caller int, request *[]byte, into *answer) error
	close() error
}

const (
	patience = 5 * time.Second // for one answer
	tries    = 50              // for one that the server could not give: on a busy machine a store may stop for a moment
)

// persist asks until there is an answer, or too often in vain. It is for what goes before a measurement.
func persist(ctx context.Context, ask func(context.Context) error) error {
	var err error
	for range tries {
		asked, cancel := context.WithTimeout(ctx, patience)
		err = ask(asked)
		cancel()
		if err == nil || ctx.Err() != nil {
			break
		}
	}
	return err
}

// connections are those to one gRPC server; callers share them in turn.
type connections []*grpc.ClientConn

// dialGRPC makes so many connections, not yet tried.
func dialGRPC(target string, count int) (transport, error) {
	made := make(connections, 0, count)
	for range count {
		connection, err := grpc.NewClient("passthrough:///"+target,
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithNoProxy(),
			grpc.WithDefaultCallOptions(grpc.ForceCodecV2(codec{})))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("connect to %s: %w", target, err), made.close())
		}
		made = append(made, connection)
	}
	return made, nil
}

func (c connections) call(ctx context.Context, caller int, request *[]byte, into *answer) error {
	const method = ratelimit.RateLimitService_ShouldRateLimit_FullMethodName
	return c[caller%len(c)].Invoke(ctx, method, request, into)
}

func (c connections) close() error {
	var errs []error
	for _, connection := range c {
		errs = append(errs, connection.Close())
	}
	return errors.Join(errs...)
}
