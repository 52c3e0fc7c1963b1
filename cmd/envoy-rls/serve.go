package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/alecthomas/kong"
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
	"github.com/envoy-rls/envoy-rls/pkg/tracing"
	"github.com/envoy-rls/envoy-rls/pkg/unmatched"
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
func (c *serveCommand) Run(s streams, parsed *kong.Context) error {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	signal.Ignore(syscall.SIGHUP) // a wish to read the rules again, which happens all the time
	tuneGC(int64(c.MemoryLimit), memlimit.FromCgroup)
	c.level = new(slog.LevelVar)
	c.level.Set(slog.Level(c.LogLevel))
	log := c.logger(s.err)
	tellVariables(log, os.Environ(), parsed.Model)
	srv, err := newServer(&c.settings, log)
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

	metrics    *metrics.Metrics
	service    *rls.Service
	store      limiter.Store
	statistics statistics
	redis      *redisstore.Store // nil: in memory
	perSecond  *redisstore.Store // for limits of less than a minute, or nil
	local      *fallback.Store   // around redis
	census     *census
	rules      ruleState
	reloads    reloads
	ready      *readiness
	failing    *failureLog
	unmatched  *unmatched.Table
	tracer     *tracing.Tracer // nil: there are no spans
	decisions  decisions
	certs      *certificates

	grpc        *grpc.Server
	grpcHealth  *health.Server
	http, admin *http.Server
	listeners   listeners
	operations
}

type listeners struct {
	grpc, http, admin net.Listener
}

// newServer makes all parts and opens the listeners. Nothing is served yet.
func newServer(s *settings, log *slog.Logger) (*server, error) {
	srv := &server{
		settings: s, log: log, began: time.Now(), metrics: metrics.New(builtFrom().version), failing: newFailureLog(log),
		unmatched: unmatched.New(0),
	}
	if err := srv.openTracing(); err != nil {
		return nil, err
	}
	if err := srv.openDecisions(); err != nil {
		return nil, err
	}
	if err := srv.openRules(); err != nil {
		return nil, err
	}
	srv.certs = srv.openCertificates()
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
	answered, late := events.Answered, &lateLog{log: log, lines: sparing{interval: time.Minute}}
	events.Answered = func(a rls.Answered) {
		answered(a)
		late.note(&a)
	}
	counted := events.Unmatched
	events.Unmatched = func(u rls.Unmatched) {
		counted(u)
		srv.noteUnmatched(u)
	}
	options := s.serviceOptions(events)
	if srv.redis != nil {
		options.Locate = redisPair{srv.redis, srv.perSecond}.locate
	}
	srv.service = rls.New(srv.store, srv.observeCalls(srv.traceCalls(options)))
	srv.gauge("inflight_requests", "Calls that are being answered.", func() float64 { return float64(srv.service.InFlight()) })
	srv.grpcHealth = health.NewServer()
	srv.ready = newReadiness(srv.grpcHealth, srv.redis != nil,
		probes{force: s.ForceStart, needsDomains: s.NeedsDomains, needsStore: s.RedisStart.ReadyNeeds})
	srv.grpc = srv.newGRPC()
	srv.http = newHTTP(srv.tellOfGRPC(srv.httpHandler()), log)
	if err := srv.openOperations(); err != nil {
		return nil, err
	}
	srv.admin = newHTTP(srv.tellOfGRPC(srv.adminHandler()), log)
	return srv, errors.Join(srv.listen(), srv.openStatistics())
}

// listen opens all ports, or reports all that can't be opened.
func (srv *server) listen() error {
	s, l := srv.settings, &srv.listeners
	err := errors.Join(
		srv.listenGRPC(),
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

func (srv *server) listenGRPC() (err error) {
	s, l := srv.settings, &srv.listeners.grpc
	if s.GRPC.UDS == "" {
		return listen(l, place{"gRPC", "--grpc-%s (GRPC_%s)", s.GRPCHost, s.GRPCPort})
	}
	*l, err = listenUnix(s.GRPC.UDS, fs.FileMode(s.GRPC.UDSMode))
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
		srv.transport(),
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
		WriteTimeout:      2 * time.Minute, // longer than any answer takes; profiles can be no longer
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
		mux.Handle("/json", srv.json())
	}
	return mux
}

// run serves until a signal, and returns nil after an orderly end.
func (srv *server) run(signals <-chan os.Signal) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	failed := make(chan error, 4)
	srv.statistics.start(failed)
	srv.decisions.start()
	go func() { failed <- srv.grpc.Serve(srv.listeners.grpc) }()
	go func() { failed <- srv.http.Serve(srv.listeners.http) }()
	go func() { failed <- srv.admin.Serve(srv.listeners.admin) }()
	srv.log.Info("listening", "grpc", srv.listeners.grpc.Addr().String(), "http", srv.listeners.http.Addr().String(),
		"admin", srv.listeners.admin.Addr().String())
	go srv.watchRules(ctx)
	go func() {
		if err := srv.watchStore(ctx); err != nil {
			failed <- err
		}
	}()
	go srv.certs.watch(ctx)
	go srv.tellUnmatched(ctx)
	go srv.overrides.Run(ctx)
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
	srv.statistics.stop()
	srv.decisions.stop()
	for _, store := range []*redisstore.Store{srv.redis, srv.perSecond} {
		if store != nil {
			_ = store.Close()
		}
	}
	srv.logUnmatched()
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
		srv.flushTraces(ctx, signals)
	case <-ctx.Done():
		srv.log.Warn("calls or streams were still open after the shutdown timeout, and are cut")
	case <-signals:
	}
}
