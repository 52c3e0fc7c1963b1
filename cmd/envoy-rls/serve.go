package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/envoy-rls/envoy-rls/pkg/fallback"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
	"github.com/envoy-rls/envoy-rls/pkg/metrics"
	"github.com/envoy-rls/envoy-rls/pkg/redisstore"
	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

// serveCommand runs the service until a signal ends it.
type serveCommand struct {
	settings
}

// Help is the end of serve --help.
func (serveCommand) Help() string {
	return `Examples:
  envoy-rls serve                                        in memory, with the rules in ./config
  envoy-rls serve --redis redis://localhost:6379         counts shared by all replicas
  REDIS_URL=redis://redis:6379 envoy-rls serve --rules /etc/envoy-rls/rules

SIGTERM drains: not ready, --drain-delay, the end of calls under way, exit 0. SIGINT does without the delay.
A second signal ends at once.`
}

// Run implements the command.
func (c *serveCommand) Run(s streams) error {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	signal.Ignore(syscall.SIGHUP) // a wish to read the rules again, which happens all the time
	tuneGC(int64(c.MemoryLimit))
	srv, err := newServer(&c.settings, c.logger(s.err))
	if err != nil {
		return err
	}
	return srv.run(signals)
}

// server is the running service: the only place that knows every part.
type server struct {
	settings *settings
	log      *slog.Logger
	began    time.Time

	metrics   *metrics.Metrics
	service   *rls.Service
	store     limiter.Store
	redis     *redisstore.Store // nil: in memory
	perSecond *redisstore.Store // for limits of less than a minute, or nil
	local     *fallback.Store   // around redis
	census    *census
	ready     *readiness
	failing   *failureLog

	grpc        *grpc.Server
	grpcHealth  *health.Server
	http, admin *http.Server
	listeners   listeners
}

type listeners struct {
	grpc, http, admin net.Listener
}

// newServer makes all parts and opens the listeners. Nothing is served yet.
func newServer(s *settings, log *slog.Logger) (*server, error) {
	srv := &server{
		settings: s, log: log, began: time.Now(), metrics: metrics.New(version()), failing: newFailureLog(log),
	}
	if err := srv.openStore(); err != nil {
		return nil, err
	}
	events := srv.metrics.Events()
	count := events.StoreFailed
	events.StoreFailed = func(err error, reason string) {
		count(err, reason)
		if !errors.Is(err, redisstore.ErrBreakerOpen) {
			srv.failing.note(err)
		}
	}
	events.Panicked = func(fault any, stack []byte) {
		log.Error("a call failed by a fault in this program", "panic", fault, "stack", string(stack))
	}
	srv.service = rls.New(srv.store, s.serviceOptions(events))
	srv.gauge("inflight_requests", "Calls that are being answered.", func() float64 { return float64(srv.service.InFlight()) })
	srv.grpcHealth = health.NewServer()
	srv.ready = newReadiness(srv.grpcHealth, srv.redis != nil)
	srv.grpc = srv.newGRPC()
	srv.http = newHTTP(srv.httpHandler(), log)
	srv.admin = newHTTP(srv.adminHandler(), log)
	return srv, srv.listen()
}

// listen opens all ports, or reports all that can't be opened.
func (srv *server) listen() error {
	s, l := srv.settings, &srv.listeners
	err := errors.Join(
		listen(&l.grpc, place{"gRPC", "--grpc-%s (GRPC_%s)", s.GRPCHost, s.GRPCPort}),
		listen(&l.http, place{"HTTP", "--%s (%s)", s.Host, s.Port}),
		listen(&l.admin, place{"admin", "--admin-%s (DEBUG_%s)", s.AdminHost, s.AdminPort}),
	)
	if err == nil {
		return nil
	}
	for _, l := range []net.Listener{l.grpc, l.http, l.admin} {
		if l != nil {
			_ = l.Close() // the process ends
		}
	}
	return err
}

// place is where to listen, and by which settings that was said.
type place struct {
	what, setting, host string
	port                port
}

func listen(l *net.Listener, p place) error {
	opened, err := net.Listen("tcp", net.JoinHostPort(p.host, strconv.Itoa(int(p.port))))
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%s can't listen: %w; choose another port by %s", p.what, err, fmt.Sprintf(p.setting, "port", "PORT"))
	case err != nil:
		return fmt.Errorf("%s can't listen: %w; choose another host by %s", p.what, err, fmt.Sprintf(p.setting, "host", "HOST"))
	}
	*l = opened
	return nil
}

// Bounds of what a connection can make the service keep: requests are a few hundred bytes, and messages that
// have only begun to arrive take memory, too.
const (
	maxMessage = 256 << 10
	maxStreams = 1000
)

// What grpc-go takes for calls. A worker keeps the stack that it has grown, which a goroutine for each call would
// grow anew; a call that finds no worker gets a goroutine.
const (
	streamWorkers    = 128
	connectionBuffer = 64 << 10
	connectionWindow = 1 << 20
)

func (srv *server) newGRPC() *grpc.Server {
	g := grpc.NewServer(
		grpc.ForceServerCodecV2(rls.Codec{}),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.ReadBufferSize(connectionBuffer),
		grpc.WriteBufferSize(connectionBuffer),
		// Windows that stay as they are, since messages are small: grpc-go would ping callers to find better ones.
		grpc.StaticStreamWindowSize(connectionBuffer),
		grpc.StaticConnWindowSize(connectionWindow),
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxConcurrentStreams(maxStreams),
		// By default grpc-go closes idle connections that are pinged, and all that are pinged often.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime:             time.Duration(srv.settings.KeepaliveMinTime),
			PermitWithoutStream: true,
		}),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionAge:      time.Duration(srv.settings.MaxConnectionAge),
			MaxConnectionAgeGrace: time.Duration(srv.settings.MaxConnectionAgeGrace),
			Time:                  30 * time.Second,
		}),
	)
	rls.Register(g, srv.service)
	healthpb.RegisterHealthServer(g, srv.grpcHealth)
	reflection.Register(g)
	return g
}

func newHTTP(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

func (srv *server) httpHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/livez", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("/readyz", srv.ready.serveReadyz)
	mux.HandleFunc("/healthcheck", srv.ready.serveHealthcheck)
	mux.Handle("/metrics", srv.metrics.Handler())
	if srv.settings.HTTPJSON {
		mux.Handle("/json", srv.service.JSON())
	}
	return mux
}

func (srv *server) adminHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/json", srv.service.JSON())
	mux.Handle("/metrics", srv.metrics.Handler())
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}

// run serves until a signal, and returns nil after an orderly end.
func (srv *server) run(signals <-chan os.Signal) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	failed := make(chan error, 3)
	go func() { failed <- srv.grpc.Serve(srv.listeners.grpc) }()
	go func() { failed <- srv.http.Serve(srv.listeners.http) }()
	go func() { failed <- srv.admin.Serve(srv.listeners.admin) }()
	srv.log.Info("listening", "grpc", srv.listeners.grpc.Addr().String(), "http", srv.listeners.http.Addr().String(),
		"admin", srv.listeners.admin.Addr().String())
	go srv.watchRules(ctx)
	go srv.watchStore(ctx)
	if srv.census != nil {
		go srv.census.run(ctx)
	}
	go func() {
		if srv.ready.wait(ctx) {
			srv.log.Info("ready", "after", time.Since(srv.began).Round(time.Millisecond).String())
		}
	}()
	select {
	case err := <-failed:
		return fmt.Errorf("serving: %w", err)
	case sig := <-signals:
		srv.drain(sig, signals)
	}
	return nil
}

// drain ends the service in order: told to be not ready, it serves on until callers have noticed, then
// finishes the calls under way. A second signal ends the waiting.
func (srv *server) drain(sig os.Signal, signals <-chan os.Signal) {
	srv.ready.drain()
	delay := time.Duration(srv.settings.DrainDelay)
	if sig == syscall.SIGINT {
		delay = 0
	}
	srv.log.Info("draining", "signal", sig.String(), "delay", delay.String())
	select {
	case <-time.After(delay):
		srv.finishCalls(signals)
	case <-signals:
	}
	srv.cut()
	_ = srv.http.Close() // nothing can be done about an error any more
	_ = srv.admin.Close()
	for _, store := range []*redisstore.Store{srv.redis, srv.perSecond} {
		if store != nil {
			_ = store.Close()
		}
	}
	srv.log.Info("stopped")
}

// cut ends what is still open. A handler that doesn't come back must not keep the process.
func (srv *server) cut() {
	done := make(chan struct{})
	go func() {
		srv.grpc.Stop()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(time.Second):
	}
}

// finishCalls waits for the calls under way, until the shutdown timeout or a second signal.
func (srv *server) finishCalls(signals <-chan os.Signal) {
	stopped := make(chan struct{})
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(srv.settings.ShutdownTimeout))
	defer cancel()
	go func() {
		srv.grpc.GracefulStop()
		_ = srv.http.Shutdown(ctx) // what is still open then is cut
		_ = srv.admin.Shutdown(ctx)
		close(stopped)
	}()
	select {
	case <-stopped:
	case <-ctx.Done():
		srv.log.Warn("calls or streams were still open after the shutdown timeout, and are cut")
	case <-signals:
	}
}
