package main

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"

	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
)

// readiness is what probes are told. The service is ready when all rules are loaded and the store has been
// asked once, whatever it said: an outage must not take all replicas out at once, unless that is what is wanted.
type readiness struct {
	grpc   *health.Server
	probes probes

	mu       sync.Mutex
	state    readyState
	asked    bool // the store has been asked for long enough, or is this process's memory
	loaded   bool // some rules are in force
	domains  bool // and they have a domain
	draining bool
	changed  chan struct{}
}

// probes say what probes other than /readyz are told, as in the replaced service.
type probes struct {
	force        bool // all is well from the start
	needsDomains bool // nothing is without any domain
	needsStore   bool // nothing is while the store can't be asked, for /readyz, too
}

// readyState is the body of /readyz.
type readyState struct {
	Ready bool `json:"ready"`
	// Reason says why not.
	Reason string `json:"reason,omitempty"`
	// Rules is the hash of the rules in force.
	Rules string `json:"rules,omitempty"`
	// Missing is what is wrong with the rules that are not in force.
	Missing []string `json:"missing,omitempty"`
	// Refused is what is wrong with files that are in force as they last were good.
	Refused []string `json:"refused,omitempty"`
	Store   string   `json:"store"`
}

func newReadiness(grpc *health.Server, remote bool, p probes) *readiness {
	r := &readiness{grpc: grpc, probes: p, changed: make(chan struct{})}
	r.state.Store = "memory"
	r.asked = !remote
	if remote {
		r.state.Store = "connecting"
	}
	r.probes.needsStore = remote && p.needsStore
	r.update(func() {})
	return r
}

// rules tells which rules are in force, if any, what is missing of them, and what was refused.
func (r *readiness) rules(now *descriptors.Ruleset, missing, refused []string) {
	r.update(func() {
		r.loaded, r.domains, r.state.Rules = now != nil, false, ""
		if now != nil {
			r.domains, r.state.Rules = !empty(now), now.Hash
		}
		r.state.Missing, r.state.Refused = missing, refused
	})
}

// missing tells what is wrong with the files of a load that was refused. A service that has had all of its
// rules stays ready with them.
func (r *readiness) missing(what []string) {
	r.update(func() {
		if !r.loaded || len(r.state.Missing) > 0 {
			r.state.Missing = what
		} else {
			r.state.Refused = what
		}
	})
}

// storeOK is what store is told of one that can be used.
const storeOK = "ok"

// store tells of the store, and whether that is enough to be ready. A service that was ready stays so, unless it needs
// the store.
func (r *readiness) store(words string, enough bool) {
	r.update(func() { r.state.Store, r.asked = words, r.asked || enough })
}

func (r *readiness) drain() { r.update(func() { r.draining = true }) }

func (r *readiness) update(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
	r.state.Reason = r.reason()
	r.state.Ready = r.state.Reason == ""
	status := healthpb.HealthCheckResponse_NOT_SERVING
	if r.state.Ready || r.probes.force && r.healthy() {
		status = healthpb.HealthCheckResponse_SERVING
	}
	r.grpc.SetServingStatus("", status)
	r.grpc.SetServingStatus("ratelimit", status)
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *readiness) reason() string {
	switch {
	case r.draining:
		return "draining"
	case len(r.state.Missing) > 0:
		return "rules are missing"
	case !r.loaded:
		return "no rules are loaded yet"
	case r.probes.needsDomains && !r.domains:
		return "the rules have no domain"
	case !r.asked || r.storeless():
		return "the store is not ready"
	}
	return ""
}

// storeless tells whether the store is away that the service must not be without. Its words are read under mu.
func (r *readiness) storeless() bool {
	return r.probes.needsStore && r.state.Store != storeOK
}

// healthy is the replaced service's word for well: it tells of rules and draining, and of the store only where the service
// must not be without it.
func (r *readiness) healthy() bool {
	return !r.draining && (r.loaded || r.probes.force) && (r.domains || !r.probes.needsDomains) && !r.storeless()
}

// wait returns true once the service is ready, and false if ctx ends before.
func (r *readiness) wait(ctx context.Context) bool {
	for {
		r.mu.Lock()
		ready, changed := r.state.Ready, r.changed
		r.mu.Unlock()
		if ready {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

func (r *readiness) now() readyState {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state
}

func (r *readiness) serveReadyz(w http.ResponseWriter, _ *http.Request) {
	state := r.now()
	w.Header().Set("Content-Type", "application/json")
	if !state.Ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(state) // the prober is gone if it fails
}

// serveHealthcheck answers as the replaced service does.
func (r *readiness) serveHealthcheck(w http.ResponseWriter, _ *http.Request) {
	r.mu.Lock()
	healthy := r.healthy()
	r.mu.Unlock()
	if !healthy {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	_, _ = w.Write([]byte("OK")) // the prober is gone if it fails
}
