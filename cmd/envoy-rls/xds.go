package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/xds"
)

// Where rules come from, in the words of metrics and the log.
const (
	fromFiles        = "file"
	fromControlPlane = "xds"
	fromSnapshot     = "snapshot"
)

// watchControlPlane gets rules from the control plane until ctx ends, and until it answers from the snapshot.
func (srv *server) watchControlPlane(ctx context.Context) {
	kept := newSnapshots(srv.snapshotPlace(), srv.log)
	if kept.place != nil {
		go kept.run(ctx)
		go srv.restore(ctx, kept)
	}
	plane := &controlPlane{srv: srv, address: srv.settings.XDS.Server}
	srv.gauge("control_plane_up", "1 while there is a stream to the control plane.", func() float64 {
		if plane.up.Load() {
			return 1
		}
		return 0
	})
	o := srv.settings.XDS.options(srv.certs)
	o.Connected, o.Lost, o.Refused = plane.connected, plane.lost, srv.refuse
	o.Accept = func(set *xds.Set) []descriptors.Problem {
		problems := srv.accept(set, fromControlPlane)
		if !descriptors.HasErrors(problems) && kept.place != nil {
			kept.keep(set)
		}
		return problems
	}
	xds.New(o).Run(ctx)
}

// restore puts the rules of the snapshot in force, unless the control plane has answered by then.
func (srv *server) restore(ctx context.Context, kept *snapshots) {
	set := kept.load(ctx, srv.settings.XDS.maxMessage())
	if set == nil {
		return
	}
	if problems := srv.accept(set, fromSnapshot); len(problems) > 0 {
		srv.log.Warn("the snapshot of the rules is not used", "version", set.Version)
		srv.tell(problems)
	}
}

// accept puts a set in force, or returns why it can't be. The control plane's own is never replaced by a snapshot.
func (srv *server) accept(set *xds.Set, from string) []descriptors.Problem {
	s := &srv.rules
	s.mu.Lock()
	defer s.mu.Unlock()
	if from == fromSnapshot && s.set == fromControlPlane {
		return nil
	}
	rules, problems := s.loader.LoadSet(set.Files)
	if rules == nil {
		return problems
	}
	if srv.isNews(rules) {
		srv.tell(problems)
	}
	switch {
	case from == fromSnapshot:
		srv.log.Warn("rules are from the snapshot until the control plane answers", "version", set.Version,
			"saved", set.Saved.UTC().Format(time.RFC3339))
	case s.set == fromSnapshot:
		srv.log.Info("the control plane has answered, rules are no longer from the snapshot", "version", set.Version)
	}
	s.set = from
	srv.enforce(rules, len(problems), "from", srv.settings.XDS.Server, "source", from, "version", set.Version,
		"resources", len(set.Files))
	return nil
}

// refuse tells of a set that can't be put in force. The one before stays.
func (srv *server) refuse(version string, problems []descriptors.Problem) {
	srv.rules.mu.Lock()
	defer srv.rules.mu.Unlock()
	wrong := srv.tell(problems)
	srv.refused(fromControlPlane, wrong)
	srv.log.Error("rules of the control plane refused as a whole", "version", version, "problems", len(wrong),
		"in_force", srv.service.Rules() != nil)
	srv.ready.missing(wrong)
}

// controlPlane tells of the stream to it.
type controlPlane struct {
	srv     *server
	address string
	up      atomic.Bool
	last    string // the error that was told of
}

func (p *controlPlane) connected() {
	p.up.Store(true)
	p.last = ""
	p.srv.log.Info("control plane connected", "address", p.address)
	p.waitsFor(nil)
}

// lost tells of an error once, however often it comes.
func (p *controlPlane) lost(err error, retry time.Duration) {
	p.up.Store(false)
	text := err.Error()
	if errors.Is(err, xds.ErrMessageTooLong) {
		text += "; raise --xds-max-message (XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES)"
	}
	p.waitsFor([]string{"the control plane at " + p.address + ": " + text})
	if text == p.last {
		p.srv.log.Debug("control plane still away", "address", p.address, "error", text, "retry", retry.String())
		return
	}
	p.last = text
	message := "control plane away, the rules in force stay"
	if p.srv.service.Rules() == nil {
		message = "control plane away, and no rules are in force"
	}
	p.srv.log.Warn(message, "address", p.address, "error", text, "retry", retry.String())
}

// waitsFor says what is missing while there are no rules yet.
func (p *controlPlane) waitsFor(what []string) {
	p.srv.rules.mu.Lock()
	defer p.srv.rules.mu.Unlock()
	if p.srv.rules.set == "" {
		p.srv.ready.missing(what)
	}
}
