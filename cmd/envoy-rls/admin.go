package main

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/pprof"
	"slices"
	"strings"

	"github.com/envoy-rls/envoy-rls/pkg/admin"
	"github.com/envoy-rls/envoy-rls/pkg/console"
	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// page is a part of admin, and what its list says of it.
type page struct {
	help    string
	handler http.Handler
}

// adminHandler serves what only operators should see. There is no /debug/pprof/cmdline: a password may be among the arguments.
func (srv *server) adminHandler() http.Handler {
	pages := map[string]page{
		"/debug/pprof/":        {"profiles of this process", http.HandlerFunc(pprof.Index)},
		"/debug/pprof/profile": {"its CPU profile, of the next ?seconds=30", http.HandlerFunc(pprof.Profile)},
		"/debug/pprof/symbol":  {"names of its addresses", http.HandlerFunc(pprof.Symbol)},
		"/debug/pprof/trace":   {"its trace, of the next ?seconds=1", http.HandlerFunc(pprof.Trace)},
		"/explain":             {"which rules a request meets, and what its answer would be, in words", http.HandlerFunc(srv.serveExplain)},
		"/unmatched":           {"what no rule matches, by shape", http.HandlerFunc(srv.serveUnmatched)},
		admin.Root:             {"overrides and counters, in JSON: see docs/overrides.md", srv.api()},
		"/json":                {"answers a RateLimitRequest in JSON, which costs what it would over gRPC", srv.json()},
		"/loglevel":            {"the log's level; PUT ?level=debug&for=60s has another for a while", srv.level.handler(srv.guard)},
		"/metrics":             {"metrics for Prometheus", srv.metrics.Handler()},
		"/rlconfig":            {"limits in force, one a line", http.HandlerFunc(srv.serveLimits)},
		"/top":                 {"who is refused most of late, and what is counted most, in JSON; ?rows=20 of each", srv.topHandler()},
		"/stats":               {"statistics by the names of envoyproxy/ratelimit, one a line", http.HandlerFunc(srv.serveStats)},
	}
	shown := srv.addConsole(pages)
	mux := http.NewServeMux()
	mux.Handle(console.Path+"/", shown)
	index := &strings.Builder{}
	for _, path := range slices.Sorted(maps.Keys(pages)) {
		mux.Handle(path, pages[path].handler)
		fmt.Fprintf(index, "%s: %s\n", path, pages[path].help)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Vary", "Accept")
		if r.URL.Path == "/" && fromBrowser(r) {
			shown.ServeHTTP(w, r)
			return
		}
		plainText(w)
		if r.URL.Path != "/" {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = io.WriteString(w, index.String()) // the client is gone if it fails
	})
	return srv.guard.Protect(mux)
}

// serveLimits prints the limits in force as the replaced service does, which other programs show.
func (srv *server) serveLimits(w http.ResponseWriter, _ *http.Request) {
	plainText(w)
	rules := srv.service.Rules()
	if rules == nil {
		return
	}
	for _, d := range rules.Sorted() {
		for _, r := range d.Rules() {
			writeLimits(w, r)
		}
	}
}

// writeLimits prints a line for each limit of a rule. What the replaced service doesn't have is at the end.
func writeLimits(w io.Writer, r *descriptors.Rule) {
	line := func(path, unit string, l *descriptors.Limit) {
		fmt.Fprintf(w, "%s: unit=%s requests_per_unit=%d, shadow_mode: %t, quota_mode: %t", path, unit, l.Requests,
			l.Shadow || r.Role == limiter.Shadow, r.Role == limiter.Quota)
		if l.Multiplier > 1 {
			fmt.Fprintf(w, ", unit_multiplier: %d", l.Multiplier)
		}
		if l.Algorithm != limiter.FixedWindow && l.Algorithm != limiter.NamedWindow {
			fmt.Fprintf(w, ", algorithm: %s", l.Algorithm)
		}
		if l.Burst > 0 {
			fmt.Fprintf(w, ", burst: %d", l.Burst)
		}
		if r.Exempt {
			fmt.Fprint(w, ", exempt: true")
		}
		fmt.Fprintln(w)
	}
	for i := range r.Limits {
		l := &r.Limits[i]
		line(l.Path, strings.ToUpper(l.Unit.String()), l)
	}
	if len(r.Limits) == 0 {
		line(r.Path, "UNKNOWN", &descriptors.Limit{})
	}
}
