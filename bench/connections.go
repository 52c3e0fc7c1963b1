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

// greetWithin bounds the wait for a server's first answer.
const greetWithin = 5 * time.Second

// connections are those to one server; callers share them in turn.
type connections []*grpc.ClientConn

// connect makes so many, not yet tried.
func connect(target string, count int) (connections, error) {
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

// greet waits until every connection has had an answer, or says why one has not.
func (c connections) greet(ctx context.Context, request []byte) error {
	ctx, cancel := context.WithTimeout(ctx, greetWithin)
	defer cancel()
	for i := range c {
		if err := c.call(ctx, i, &request, new(answer)); err != nil {
			return fmt.Errorf("no answer from %s: %w", c[i].CanonicalTarget(), err)
		}
	}
	return nil
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
