package main

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"

	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// readiness is what probes are told. The service is ready when all rules are loaded and the store has been
// asked once, whatever it said: an outage must not take all replicas out at once.
type readiness struct {
	grpc *health.Server

	mu       sync.Mutex
	state    readyState
	asked    bool // the store has been asked for long enough, or is this process's memory
	loaded   bool // some rules are in force
	draining bool
	changed  chan struct{}
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

func newReadiness(grpc *health.Server, remote bool) *readiness {
	r := &readiness{grpc: grpc, changed: make(chan struct{})}
	r.state.Store = "memory"
	r.asked = !remote
	if remote {
		r.state.Store = "connecting"
	}
	r.update(func() {})
	return r
}

// rules tells which rules are in force, by their hash, what is missing of them, and what was refused.
func (r *readiness) rules(hash string, missing, refused []string) {
	r.update(func() {
		r.loaded = hash != ""
		r.state.Rules, r.state.Missing, r.state.Refused = hash, missing, refused
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

// store tells of the store, and whether that is enough to be ready. A service that was ready stays so: an
// outage of the store must not take all replicas out at once.
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
	if r.state.Ready {
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
	case !r.asked:
		return "the store is not ready"
	}
	return ""
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

func (r *readiness) serveReadyz(w http.ResponseWriter, _ *http.Request) {
	r.mu.Lock()
	state := r.state
	r.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if !state.Ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(state) // the prober is gone if it fails
}

// serveHealthcheck answers as the replaced service does: it tells of rules and draining, never of the store.
func (r *readiness) serveHealthcheck(w http.ResponseWriter, _ *http.Request) {
	r.mu.Lock()
	healthy := r.loaded && !r.draining
	r.mu.Unlock()
	if !healthy {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	_, _ = w.Write([]byte("OK")) // the prober is gone if it fails
}
