package main

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/admin"
	"github.com/envoy-rls/envoy-rls/pkg/console"
	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
	"github.com/envoy-rls/envoy-rls/pkg/metrics"
	"github.com/envoy-rls/envoy-rls/pkg/redisstore"
	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

// statusPath is where admin tells what shownStatus has.
const statusPath = admin.Root + "status"

// addConsole adds the console, which it returns, and what that reads, to the pages of admin.
func (srv *server) addConsole(pages map[string]page) http.Handler {
	shown := console.New()
	pages[console.Path] = page{"all of this in a browser, which gets it at / as well", shown}
	pages[admin.Root+"rules"] = page{"rules in force, and what became of descriptors, in JSON", jsonOf(srv.rulesNow)}
	pages[statusPath] = page{"this process, its store, and the last loads of rules, in JSON", jsonOf(func() any {
		return srv.statusNow(slices.Sorted(maps.Keys(pages)))
	})}
	return shown
}

// fromBrowser tells whether somebody looks at what is answered, rather than a program.
func fromBrowser(r *http.Request) bool { return strings.Contains(r.Header.Get("Accept"), "text/html") }

func jsonOf(now func() any) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(now()) // the client is gone if it fails
	})
}

// shownRules is the body of /api/v1/rules.
type shownRules struct {
	// Hash names the rules, "" while there are none.
	Hash    string        `json:"hash"`
	Domains []shownDomain `json:"domains"`
}

type shownDomain struct {
	Name  string      `json:"name"`
	Rules []shownRule `json:"rules"`
	// BroughtAlong is what became of limits that requests bring along.
	BroughtAlong metrics.Results `json:"brought_along,omitempty"`
}

type shownRule struct {
	Path   string              `json:"path"`
	Levels []descriptors.Place `json:"levels"`
	// Words say what the rule does, a line for each limit.
	Words     []string     `json:"words"`
	Limits    []shownLimit `json:"limits"`
	OnFailure string       `json:"on_store_failure"`
	Quota     bool         `json:"quota,omitempty"`
	Replaces  []string     `json:"replaces,omitempty"`
	MaxValues int64        `json:"max_values,omitempty"`
	Distinct  int64        `json:"distinct_values,omitempty"`
	// Results are those of a rule without limits.
	Results metrics.Results `json:"results,omitempty"`
}

type shownLimit struct {
	Path    string          `json:"path"`
	Name    string          `json:"name,omitempty"`
	Words   string          `json:"words"`
	Shadow  bool            `json:"shadow,omitempty"`
	Results metrics.Results `json:"results"`
}

func (srv *server) rulesNow() any {
	shown := shownRules{Domains: []shownDomain{}}
	rules := srv.service.Rules()
	if rules == nil {
		return shown
	}
	shown.Hash = rules.Hash
	decided := srv.metrics.Decided()
	for _, d := range rules.Sorted() {
		results := decided[d.Name]
		domain := shownDomain{Name: d.Name, Rules: []shownRule{}, BroughtAlong: results[d.Name+rls.BroughtAlong]}
		for _, r := range d.Rules() {
			domain.Rules = append(domain.Rules, newShownRule(r, results))
		}
		shown.Domains = append(shown.Domains, domain)
	}
	return shown
}

func newShownRule(r *descriptors.Rule, results map[string]metrics.Results) shownRule {
	shown := shownRule{
		Path: r.Path, Levels: r.Places(), Words: r.Words(), Limits: []shownLimit{}, OnFailure: r.OnFailure.String(),
		Quota: r.Role == limiter.Quota, Replaces: r.Replaces, MaxValues: r.MaxValues, Distinct: r.DistinctValues(),
	}
	if len(r.Limits) == 0 {
		shown.Results = results[r.Path]
	}
	for i := range r.Limits {
		l := &r.Limits[i]
		shown.Limits = append(shown.Limits, shownLimit{
			Path: l.Path, Name: l.Name, Words: l.Words(), Shadow: l.Shadow || r.Role == limiter.Shadow, Results: results[l.Path],
		})
	}
	return shown
}

// shownStatus is the body of /api/v1/status.
type shownStatus struct {
	Version string    `json:"version"`
	Began   time.Time `json:"began"`
	Now     time.Time `json:"now"`
	// Pages are those that admin of this build has.
	Pages []string `json:"pages"`
	// Readiness is what /readyz tells, and Source where the rules are from.
	Readiness readyState `json:"readiness"`
	Source    string     `json:"source"`
	Limits    int        `json:"limits"`
	Store     shownStore `json:"store"`
	// Requests are calls answered by code, and Degraded hits that a failure policy answered for, by policy.
	Requests map[string]int64 `json:"requests"`
	Degraded map[string]int64 `json:"degraded"`
	// Unmatched is how many descriptors had no rule.
	Unmatched int64 `json:"unmatched"`
	// Shadow tells that all limits are only tried out.
	Shadow  bool     `json:"shadow"`
	Reloads []reload `json:"reloads"`
}

type shownStore struct {
	Kind storeKind `json:"kind"`
	// Up tells whether it is asked.
	Up       bool        `json:"up"`
	Address  string      `json:"address,omitempty"`
	Lanes    []shownLane `json:"lanes"`
	Replicas int         `json:"replicas"`
	// Replica is what this one is called by others over the same Redis, "" if there are none; Sharing are all of them
	// that were heard of last.
	Replica string           `json:"replica,omitempty"`
	Sharing []string         `json:"sharing,omitempty"`
	Used    int              `json:"connections_used"`
	Idle    int              `json:"connections_idle"`
	Errors  map[string]int64 `json:"errors"` // by reason
}

// sharedWith tells whether two replicas count in the same store. Of two, the one that began to beat later knows the other.
func (s shownStore) sharedWith(other shownStore) bool {
	return s.Replica != "" && slices.Contains(other.Sharing, s.Replica) || other.Replica != "" && slices.Contains(s.Sharing, other.Replica)
}

// shownLane is a lane, and the state of its breaker.
type shownLane struct {
	Name    string `json:"name"`
	Breaker string `json:"breaker"`
}

func (srv *server) statusNow(pages []string) shownStatus {
	shown := shownStatus{
		Version: builtFrom().version, Began: srv.began, Now: time.Now(), Pages: pages,
		Readiness: srv.ready.now(), Source: srv.source(), Store: srv.storeNow(),
		Requests: srv.metrics.Totals("requests_total", "code"), Degraded: srv.metrics.Totals("degraded_answers_total", "policy"),
		Shadow: srv.settings.Shadow, Reloads: srv.reloads.newest(),
	}
	for _, n := range srv.metrics.Totals("unmatched_descriptors_total", "domain") {
		shown.Unmatched += n
	}
	if rules := srv.service.Rules(); rules != nil {
		shown.Limits = rules.Limits
	}
	return shown
}

// source is where the rules in force are from.
func (srv *server) source() string {
	srv.rules.mu.Lock()
	defer srv.rules.mu.Unlock()
	return srv.rules.source()
}

func (srv *server) storeNow() shownStore {
	shown := shownStore{
		Kind: srv.settings.storeKind(), Up: true, Lanes: []shownLane{}, Replicas: 1,
		Errors: srv.metrics.Totals("store_errors_total", "reason"),
	}
	if srv.redis == nil {
		return shown
	}
	shown.Replica, shown.Sharing = srv.census.self.Name, srv.census.sharing()
	all, idle := srv.redis.Connections()
	shown.Address, shown.Used, shown.Idle, shown.Replicas = srv.redis.Address(), all-idle, idle, srv.census.count()
	lanes := func(store *redisstore.Store, prefix string) {
		shown.Up = shown.Up && store.Up()
		for name, state := range store.Lanes {
			shown.Lanes = append(shown.Lanes, shownLane{prefix + name, state().String()})
		}
	}
	lanes(srv.redis, "")
	if srv.perSecond != nil {
		lanes(srv.perSecond, "per-second-")
	}
	return shown
}
