package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
)

// accepts is ready once something listens.
func accepts(address string) func(context.Context) error {
	return func(ctx context.Context) error {
		connection, err := dial(ctx, address)
		if err != nil {
			return err
		}
		return connection.Close()
	}
}

// pongs is ready once a Redis answers a ping.
func pongs(address string) func(context.Context) error {
	const ping, pong = "PING\r\n", "+PONG\r\n"
	return func(ctx context.Context) error {
		connection, err := dial(ctx, address)
		if err != nil {
			return err
		}
		defer connection.Close()
		if _, err := io.WriteString(connection, ping); err != nil {
			return err
		}
		reply := make([]byte, len(pong))
		if _, err := io.ReadFull(connection, reply); err != nil {
			return err
		}
		if string(reply) != pong {
			return fmt.Errorf("redis answers %q", reply)
		}
		return nil
	}
}

// dial connects, and lets nothing on the connection outlast ctx.
func dial(ctx context.Context, address string) (net.Conn, error) {
	connection, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	if deadline, ok := ctx.Deadline(); ok {
		return connection, connection.SetDeadline(deadline)
	}
	return connection, nil
}

// answersOK is ready once a GET gives 200.
func answersOK(url string) func(context.Context) error {
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return errors.New("ready check answers " + response.Status)
		}
		return nil
	}
}
