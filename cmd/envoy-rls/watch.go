package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/redisstore"
)

const (
	// rulesInterval is how often the rule files are looked at.
	rulesInterval = time.Second
	// storeInterval is how often a store that isn't there is asked again.
	storeInterval = time.Second
	// storePatience is how long the service waits for the store before it is ready without it.
	storePatience = 5 * time.Second
)

// watchRules loads the rules, and again whenever they change, until ctx ends.
func (srv *server) watchRules(ctx context.Context) {
	var last [sha256.Size]byte
	var lastError string
	for {
		files, err := descriptors.ReadFiles(srv.settings.rulePaths())
		switch sum := digest(files); {
		case err != nil && err.Error() != lastError:
			srv.noRules(err)
		case err == nil && (sum != last || lastError != ""):
			last = sum
			srv.load(files)
		}
		if lastError = ""; err != nil {
			lastError = err.Error()
		}
		select {
		case <-time.After(rulesInterval):
		case <-ctx.Done():
			return
		}
	}
}

// digest tells whether files have changed.
func digest(files []descriptors.File) [sha256.Size]byte {
	h := sha256.New()
	for _, f := range files {
		fmt.Fprintf(h, "%q %d\n", f.Name, len(f.Data))
		_, _ = h.Write(f.Data) // a hash takes everything
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// noRules tells of rules that can't be read. Those in force stay.
func (srv *server) noRules(err error) {
	srv.metrics.Refused()
	if srv.service.Rules() == nil {
		srv.log.Error("rules can't be read", "error", err)
		srv.ready.rules("", []string{err.Error()})
		return
	}
	srv.log.Error("rules can't be read, those in force stay", "error", err)
}

// load compiles files and puts them in force. At the start, good files are used although others are bad;
// later, a bad file keeps the rules that are in force.
func (srv *server) load(files []descriptors.File) {
	rules, problems := descriptors.Compile(files, srv.settings.compileOptions())
	var missing []string
	for _, p := range problems {
		if p.Severity == descriptors.Error {
			missing = append(missing, p.String())
			srv.log.Error("rules refused", "problem", p.String())
			continue
		}
		srv.log.Warn("rules are doubtful", "problem", p.String())
	}
	now := srv.service.Rules()
	if len(files) == 0 {
		missing = append(missing, "no rule files in "+strings.Join(srv.settings.rulePaths(), ", "))
		srv.log.Error("rules refused", "problem", missing[0])
	}
	if len(missing) > 0 && (now != nil || empty(rules)) {
		srv.metrics.Refused()
		srv.ready.missing(missing)
		return
	}
	srv.service.SetRules(rules)
	srv.metrics.Loaded(rules, "file", len(missing) == 0)
	srv.ready.rules(rules.Hash, missing)
	domains := 0
	for range rules.Domains {
		domains++
	}
	srv.log.Info("rules loaded", "from", strings.Join(srv.settings.rulePaths(), ","), "files", len(files),
		"domains", domains, "limits", rules.Limits, "hash", rules.Hash, "warnings", len(problems)-len(missing))
}

func empty(rules *descriptors.Ruleset) bool {
	for range rules.Domains {
		return false
	}
	return true
}

// watchStore asks the store at the start until it answers, and again when calls of it have failed.
func (srv *server) watchStore(ctx context.Context) {
	if srv.redis == nil {
		srv.log.Info("store ready", "store", "memory",
			"hint", "one process only; --redis redis://host:6379 shares counts")
		return
	}
	if !srv.awaitStore(ctx) {
		return
	}
	srv.log.Info("store ready", "store", "redis", "address", srv.redis.Address(), "version", srv.redis.Version(ctx))
	for {
		select {
		case <-srv.failing.began:
		case <-ctx.Done():
			return
		}
		if srv.checkStore(ctx) == nil {
			continue // it was a call that failed, not the store
		}
		if !srv.awaitStore(ctx) {
			return
		}
		srv.log.Info("store answers again", "store", "redis", "address", srv.redis.Address(),
			"failures", srv.failing.ended())
	}
}

// awaitStore returns true once the store can be used, and false if ctx ends before.
func (srv *server) awaitStore(ctx context.Context) bool {
	began := time.Now()
	for last := ""; ; {
		err := srv.checkStore(ctx)
		if err == nil {
			srv.ready.store("ok", true)
			return true
		}
		var refuses *redisstore.Unsupported
		srv.ready.store(err.Error(), !errors.As(err, &refuses) && time.Since(began) >= storePatience)
		if err.Error() != last {
			srv.log.Error("store not ready", "store", "redis", "address", srv.redis.Address(), "error", err)
			last = err.Error()
		}
		select {
		case <-time.After(storeInterval):
		case <-ctx.Done():
			return false
		}
	}
}

func (srv *server) checkStore(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, storePatience/2)
	defer cancel()
	return srv.redis.Check(ctx)
}

// failureLog tells of the store's failures once in a while, not once a call.
type failureLog struct {
	log   *slog.Logger
	began chan struct{} // has an element after a failure

	mu           sync.Mutex
	last         time.Time
	missed, seen int
}

func newFailureLog(log *slog.Logger) *failureLog {
	return &failureLog{log: log, began: make(chan struct{}, 1)}
}

// failureInterval is the shortest time between two lines about a failing store.
const failureInterval = 10 * time.Second

func (f *failureLog) note(err error) {
	select {
	case f.began <- struct{}{}:
	default:
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen++
	if time.Since(f.last) < failureInterval {
		f.missed++
		return
	}
	f.log.Warn("store failed, on_store_failure answers", "error", err, "more_since_last_line", f.missed)
	f.last, f.missed = time.Now(), 0
}

// ended returns how many failures there were since it was last called.
func (f *failureLog) ended() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.seen
	f.seen = 0
	return n
}

// redisLog gives the client library's own words to the log, as details.
type redisLog struct{ log *slog.Logger }

// Printf implements the library's logger.
func (l redisLog) Printf(ctx context.Context, format string, v ...any) {
	l.log.DebugContext(ctx, "redis client", "says", fmt.Sprintf(format, v...))
}
