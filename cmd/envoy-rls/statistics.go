package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/statsd"
)

// statistics are where they go, beside /metrics of HTTP and admin. The zero value is nowhere.
type statistics struct {
	senders  []*statsd.Sender
	http     *http.Server
	listener net.Listener // nil: metrics have no port of their own

	cancel  context.CancelFunc
	sending sync.WaitGroup
}

// openStatistics opens what settings say. Nothing is served or sent yet.
func (srv *server) openStatistics() error {
	s, st := &srv.settings.Statistics, &srv.statistics
	srv.metrics.Replaced(s.replaced())
	if srv.settings.sendsStatsd() {
		o := s.sender()
		o.Stats, o.Changed = srv.metrics.Stats, srv.statsdChanged("statsd", o, srv.settings.wantsStatsd())
		st.senders = append(st.senders, statsd.New(o))
	}
	if s.sendsDog() {
		mogrifiers, err := s.mogrifiers()
		if err != nil {
			return err
		}
		o := s.sender()
		o.Stats, o.Changed = srv.metrics.Stats, srv.statsdChanged("DogStatsD", o, true)
		st.senders = append(st.senders, statsd.NewDog(o, mogrifiers))
	}
	if !s.listens() {
		return nil
	}
	all := srv.metrics.Handler()
	st.http = newHTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != s.MetricsPath {
			http.NotFound(w, r)
			return
		}
		all.ServeHTTP(w, r)
	}), srv.log)
	var err error
	if st.listener, err = net.Listen("tcp", s.MetricsAddr); err != nil {
		return fmt.Errorf("metrics can't listen: %w; choose another address by --metrics-addr (PROMETHEUS_ADDR)", err)
	}
	srv.log.Info("listening for metrics alone", "address", st.listener.Addr().String(), "path", s.MetricsPath)
	return nil
}

// statsdChanged tells of a statsd that is away, and of one that is there again. By default there is none: then it is no fault.
func (srv *server) statsdChanged(kind string, o statsd.Options, wanted bool) func(error) {
	level := slog.LevelWarn
	if !wanted {
		level = slog.LevelInfo
	}
	return func(err error) {
		if err != nil {
			srv.log.Log(context.Background(), level, "statistics can't be sent", "to", kind, "address", o.Address,
				"error", err, "mend", "USE_STATSD=false, if there is none")
			return
		}
		srv.log.Info("statistics are sent", "to", kind, "address", o.Address, "every", o.Interval.String())
	}
}

// start serves and sends until stop. What fails is told.
func (s *statistics) start(failed chan<- error) {
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	for _, sender := range s.senders {
		s.sending.Go(func() { sender.Run(ctx) })
	}
	if s.listener != nil {
		go func() { failed <- s.http.Serve(s.listener) }()
	}
}

// stop has the senders send once more, and waits for that a moment.
func (s *statistics) stop() {
	s.cancel()
	sent := make(chan struct{})
	go func() {
		s.sending.Wait()
		close(sent)
	}()
	select {
	case <-sent:
	case <-time.After(time.Second):
	}
	if s.http != nil {
		_ = s.http.Close() // nothing can be done about an error any more
	}
}

// serveStats lists the statistics by the replaced service's names.
func (srv *server) serveStats(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_ = srv.metrics.WriteStats(w) // the client is gone if it fails
}
