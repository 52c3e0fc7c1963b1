package main

import (
	"context"
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
	// storeInterval is how often a store that isn't there is asked again.
	storeInterval = time.Second
	// storePatience is how long the service waits for the store before it is ready without it.
	storePatience = 5 * time.Second
)

// watchRules loads the rules, and again whenever they change, until ctx ends.
func (srv *server) watchRules(ctx context.Context) {
	loader := descriptors.NewLoader(srv.settings.compileOptions())
	descriptors.Source{Paths: srv.settings.rulePaths()}.Watch(ctx, func(files []descriptors.File, err error) {
		if err != nil {
			srv.noRules(err)
			return
		}
		srv.load(loader, files)
	})
}

// noRules tells of rules that can't be read. Those in force stay.
func (srv *server) noRules(err error) {
	srv.metrics.Refused()
	if srv.service.Rules() == nil {
		srv.log.Error("rules can't be read", "error", err)
		srv.ready.rules("", []string{err.Error()}, nil)
		return
	}
	srv.log.Error("rules can't be read, those in force stay", "error", err)
	srv.ready.missing([]string{err.Error()})
}

// load compiles files and puts them in force: a bad one as it last was good, if it ever was.
func (srv *server) load(loader *descriptors.Loader, files []descriptors.File) {
	rules, problems, missing := loader.Load(files)
	var wrong []string
	for _, p := range problems {
		if p.Severity == descriptors.Error {
			wrong = append(wrong, p.String())
			srv.log.Error("rules refused", "problem", p.String())
			continue
		}
		srv.log.Warn("rules are doubtful", "problem", p.String())
	}
	if len(files) == 0 {
		missing = srv.service.Rules() == nil
		wrong = append(wrong, "no rule files in "+strings.Join(srv.settings.rulePaths(), ", "))
		srv.log.Error("rules refused", "problem", wrong[0])
	}
	if empty(rules) {
		srv.metrics.Refused()
		srv.ready.missing(wrong)
		return
	}
	if srv.service.Rules() == nil || srv.service.Rules().Hash != rules.Hash {
		srv.inForce(rules)
		srv.log.Info("rules loaded", "from", strings.Join(srv.settings.rulePaths(), ","), "files", len(files),
			"domains", len(rules.Sorted()), "limits", rules.Limits, "hash", rules.Hash,
			"warnings", len(problems)-len(wrong))
	}
	srv.metrics.Loaded(rules, "file", len(wrong) == 0)
	if len(wrong) > 0 && !missing {
		srv.log.Warn("refused files stay in force as they last were good", "problems", len(wrong))
	}
	if missing {
		srv.ready.rules(rules.Hash, wrong, nil)
		return
	}
	srv.ready.rules(rules.Hash, nil, wrong) // each bad file is in force as it was
}

// inForce puts rules in force, and logs how they differ from those before.
func (srv *server) inForce(rules *descriptors.Ruleset) {
	before := srv.service.Rules()
	srv.service.SetRules(rules)
	if before == nil {
		return
	}
	changes := rules.Changes(before)
	for _, c := range changes[:min(len(changes), maxChangesLogged)] {
		srv.log.Info("rule changed", "change", c)
	}
	if more := len(changes) - maxChangesLogged; more > 0 {
		srv.log.Info("rules changed", "more", more)
	}
}

// maxChangesLogged bounds the lines that one reload writes.
const maxChangesLogged = 50

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
	if policy := srv.redis.EvictionPolicy(ctx); strings.HasPrefix(policy, "allkeys") {
		srv.log.Warn("Redis forgets counters, whose limits then begin anew, when its memory is full", "maxmemory-policy", policy,
			"mend", "set maxmemory-policy noeviction, or volatile-ttl")
	}
	go srv.watchMark(ctx)
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
	if srv.perSecond != nil {
		if err := srv.perSecond.Check(ctx); err != nil {
			return fmt.Errorf("for limits of less than a minute: %w", err)
		}
	}
	return srv.redis.Check(ctx)
}

// watchMark looks now and then for the mark that Check leaves in Redis. Where it is gone, so are the counters.
func (srv *server) watchMark(ctx context.Context) {
	tick := time.NewTicker(censusInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		asking, cancel := context.WithTimeout(ctx, censusInterval/2)
		lost, err := srv.redis.Mark(asking)
		cancel()
		if err == nil && lost {
			srv.metrics.StoreReset()
			srv.log.Warn("Redis has lost its counters: all limits begin anew", "address", srv.redis.Address())
		}
	}
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
