package main

import (
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/admin"
)

// levelSwitch has the log at another level for a while.
type levelSwitch struct {
	level *slog.LevelVar
	log   *slog.Logger

	mu     sync.Mutex
	usual  slog.Level
	revert *time.Timer // nil: the level is the usual one
}

// maxLevelTime is the longest while.
const maxLevelTime = 24 * time.Hour

func (l *levelSwitch) handler(guard *admin.Guard) http.Handler {
	change := guard.Change(l.change)
	read := guard.Read(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, l.level.Level()) })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Method {
		case http.MethodGet, http.MethodHead:
			read.ServeHTTP(w, r)
		case http.MethodPut:
			change.ServeHTTP(w, r)
		default:
			w.Header().Set("Allow", "GET, HEAD, PUT")
			http.Error(w, "GET tells the level, PUT ?level=debug&for=60s changes it", http.StatusMethodNotAllowed)
		}
	})
}

func (l *levelSwitch) change(w http.ResponseWriter, r *http.Request, by string) {
	var level logLevel
	query := r.URL.Query()
	if err := level.UnmarshalText([]byte(query.Get("level"))); err != nil {
		http.Error(w, "level: "+err.Error(), http.StatusBadRequest)
		return
	}
	lifetime, err := time.ParseDuration(query.Get("for"))
	if err != nil || lifetime <= 0 || lifetime > maxLevelTime {
		http.Error(w, "for is how long, with its unit, such as 60s, up to 24h; it is needed", http.StatusBadRequest)
		return
	}
	usual := l.set(slog.Level(level), lifetime)
	l.log.Warn("log level changed", "level", slog.Level(level).String(), "for", lifetime.String(), "then", usual.String(), "by", by)
	fmt.Fprintf(w, "%s for %s, then %s\n", slog.Level(level), lifetime, usual)
}

// set has another level for a while, in place of another such, and returns what comes then.
func (l *levelSwitch) set(level slog.Level, lifetime time.Duration) (usual slog.Level) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.revert == nil {
		l.usual = l.level.Level()
	} else {
		l.revert.Stop()
	}
	l.level.Set(level)
	var own *time.Timer
	own = time.AfterFunc(lifetime, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.revert == own {
			l.level.Set(l.usual)
			l.revert = nil
			l.log.Warn("log level is the usual one again", "level", l.usual.String())
		}
	})
	l.revert = own
	return l.usual
}
