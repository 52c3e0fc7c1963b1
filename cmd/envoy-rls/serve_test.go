package main

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// TestWhoDoesNotReadTheAnswerIsLeft has a server wait for a thousandth of the time.
func TestWhoDoesNotReadTheAnswerIsLeft(t *testing.T) {
	left := make(chan struct{})
	server := newHTTP(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		defer close(left)
		for err := error(nil); err == nil; {
			_, err = w.Write(make([]byte, 1<<20))
		}
	}), slog.New(slog.DiscardHandler))
	server.WriteTimeout /= 1000
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(l) }() // it ends with the test
	t.Cleanup(func() { _ = server.Close() })
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	if _, err := io.WriteString(client, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-left:
	case <-time.After(10 * time.Second):
		t.Error("the answer is still being written")
	}
}

func TestAnOrderlyEndLeavesNoGoroutineBehind(t *testing.T) {
	redis := proctest.StartRedis(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", proctest.StartCollector(t).GRPC)
	for _, c := range []struct {
		name string
		args []string
	}{
		{"with spans", []string{"--redis=" + redis.URL(), "--tracing-enabled", "--tracing-exporter-protocol=grpc"}},
		{"in memory", []string{"--store=memory"}},
		{"with Redis", []string{"--redis=" + redis.URL(), "--store-timeout=5s"}},
		{"without its Redis", []string{"--redis=redis://127.0.0.1:1"}},
		{"without its control plane", []string{"--store=memory", "--config-type=xds", "--xds-server=127.0.0.1:1", "--config-snapshot=nowhere/rules"}},
		{"without rules", []string{"--store=memory", "--rules=nowhere"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			defer proctest.Goroutines(t)()
			serveOneCall(t, append([]string{"--rules=" + filepath.Join(proctest.Root(), "config")}, c.args...))
		})
	}
}

// serveOneCall runs a server in this process, asks it once, whatever it answers, and ends it by a signal.
func serveOneCall(t *testing.T, args []string) {
	t.Helper()
	srv, err := newServer(readSettings(t, args), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	signals, ended := make(chan os.Signal, 1), make(chan error)
	go func() { ended <- srv.run(signals) }()
	conn, err := grpc.NewClient(srv.listeners.grpc.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = ratelimit.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), shopRequest("user"))
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	signals <- syscall.SIGINT
	if err := <-ended; err != nil {
		t.Errorf("the server ended with: %v", err)
	}
}

func readSettings(t *testing.T, args []string) *settings {
	t.Helper()
	var problems settingProblems
	var c commandLine
	parser, err := kong.New(&c, settingDefaults(false), problems.mappers())
	if err != nil {
		t.Fatal(err)
	}
	free := []string{"serve", "--grpc-port=0", "--port=0", "--admin-port=0", "--host=127.0.0.1", "--grpc-host=127.0.0.1"}
	ctx, err := parser.Parse(append(free, args...))
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range problems.list(ctx) {
		t.Fatal(err)
	}
	return &c.Serve.settings
}
