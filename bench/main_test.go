package main

import (
	"context"
	"log"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/alecthomas/kong"
)

// TestMain lets the test binary stand in for the programs that compare starts: called with a subcommand, it is this
// program, or a stub of envoy-rls.
func TestMain(m *testing.M) {
	if len(os.Args) < 2 || strings.HasPrefix(os.Args[1], "-") {
		os.Exit(m.Run())
	}
	if os.Args[1] != "serve" {
		main()
		return
	}
	if err := serveStub(os.Args[2:]); err != nil {
		log.Fatal(err)
	}
}

// stub has the flags that compare gives to envoy-rls.
type stub struct {
	Host, Port         string
	GrpcHost, GrpcPort string
	AdminPort          string
	DrainDelay         string
	Rules              string `type:"existingdir"`
	Store, Redis       string
	MemoryLimit        string
}

// serveStub is ready after its first refusal and decides like the no-op.
func serveStub(args []string) error {
	flags := new(stub)
	parser, err := kong.New(flags)
	if err != nil {
		return err
	}
	if _, err := parser.Parse(args); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(flags.Rules, "bench.yaml")); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var asked atomic.Bool
	ready := func(w http.ResponseWriter, _ *http.Request) {
		if !asked.Swap(true) {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", ready)
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	for _, port := range []string{flags.Port, flags.AdminPort} {
		go func() { log.Fatal(http.ListenAndServe(net.JoinHostPort(flags.Host, port), mux)) }()
	}
	noop := &Noop{Listen: net.JoinHostPort(flags.GrpcHost, flags.GrpcPort)}
	return noop.Run(ctx, os.Stdout)
}
