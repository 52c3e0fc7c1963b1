package main

import (
	"cmp"
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

// ruleState is what the sources of rules, files and a control plane, have in common.
type ruleState struct {
	mu     sync.Mutex
	loader *descriptors.Loader
	set    string // where the rules of a control plane are from, "" while there are none
	// wrong is what is wrong with files. missing tells whether some have no good version in force.
	wrong   []string
	missing bool
	mounts  sync.Once // how files are mounted has been told
}

// source is where the rules in force are from.
func (s *ruleState) source() string { return cmp.Or(s.set, fromFiles) }

// openRules makes what compiles rules. None are read yet.
func (srv *server) openRules() error {
	o, err := srv.settings.compileOptions()
	if o.HashKey != nil {
		srv.log.Info("values are hashed by a secret where rules want it", "hash_key", o.HashKey.String())
	}
	srv.rules.loader = descriptors.NewLoader(o)
	return err
}

// watchRules loads the rules, and again whenever they change, until ctx ends.
func (srv *server) watchRules(ctx context.Context) {
	source := srv.settings.ruleFiles()
	if len(source.Paths) == 0 {
		srv.watchControlPlane(ctx)
		return
	}
	var after sync.Once
	source.Watch(ctx, func(files []descriptors.File, err error) {
		srv.filesChanged(files, err, source.Paths)
		if srv.settings.ConfigType == configXDS { // whose rules have the files' defaults from the first call on
			after.Do(func() { go srv.watchControlPlane(ctx) })
		}
	})
}

func (srv *server) filesChanged(files []descriptors.File, err error, paths []string) {
	srv.rules.mu.Lock()
	defer srv.rules.mu.Unlock()
	if err != nil {
		srv.noRules(err)
		return
	}
	srv.rules.mounts.Do(func() { srv.tellMounts(files) })
	srv.load(files, paths)
}

// noRules tells of rules that can't be read. Those in force stay.
func (srv *server) noRules(err error) {
	srv.rules.wrong = []string{err.Error()}
	srv.refused(fromFiles, srv.rules.wrong)
	if srv.service.Rules() == nil {
		srv.rules.missing = true
		srv.log.Error("rules can't be read", "error", err)
		srv.ready.rules(nil, srv.rules.wrong, nil)
		return
	}
	srv.log.Error("rules can't be read, those in force stay", "error", err)
	srv.ready.missing(srv.rules.wrong)
}

// tell logs problems, and returns the errors.
func (srv *server) tell(problems []descriptors.Problem) (wrong []string) {
	for i, p := range problems {
		if p.Severity == descriptors.Error {
			wrong = append(wrong, p.String())
		}
		switch {
		case i == maxLogged:
			srv.log.Warn("there are more problems with rules", "more", len(problems)-maxLogged)
		case i > maxLogged:
		case p.Severity == descriptors.Error:
			srv.log.Error("rules refused", "problem", p.String())
		default:
			srv.log.Warn("rules are doubtful", "problem", p.String())
		}
	}
	return wrong
}

// load compiles files and puts them in force: a bad one as it last was good, if it ever was. Files beside a control
// plane wait for its rules.
func (srv *server) load(files []descriptors.File, paths []string) {
	s, alone := &srv.rules, srv.settings.ConfigType != configXDS
	rules, problems, missing := s.loader.Load(files)
	s.wrong, s.missing = srv.tell(problems), missing
	if len(files) == 0 && alone {
		s.missing = srv.service.Rules() == nil
		s.wrong = append(s.wrong, "no rule files in "+strings.Join(paths, ", "))
		srv.log.Error("rules refused", "problem", s.wrong[0])
	}
	if alone && empty(rules) || !alone && s.set == "" {
		if len(s.wrong) > 0 || alone {
			srv.refused(fromFiles, s.wrong)
			srv.ready.missing(s.wrong)
		}
		return
	}
	srv.enforce(rules, len(problems)-len(s.wrong), "from", strings.Join(paths, ","), "files", len(files))
	if len(s.wrong) > 0 && !s.missing {
		srv.log.Warn("refused files stay in force as they last were good", "problems", len(s.wrong))
	}
}

// enforce puts rules in force, and says so, in the log only if they are new. The attributes say where they are from.
func (srv *server) enforce(rules *descriptors.Ruleset, warnings int, attributes ...any) {
	s := &srv.rules
	var changes []string
	if srv.isNews(rules) {
		changes = srv.inForce(rules)
		srv.log.Info("rules loaded", append(attributes, "domains", len(rules.Sorted()), "limits", rules.Limits, "hash", rules.Hash,
			"warnings", warnings)...)
	}
	source := s.source()
	srv.metrics.Loaded(rules, source, len(s.wrong) == 0)
	came := reloadInForce
	if len(s.wrong) > 0 {
		came = reloadPartly
	}
	srv.reloads.add(newReload(came, source, rules).tell(changes, s.wrong))
	if s.missing {
		srv.ready.rules(rules, s.wrong, nil)
		return
	}
	srv.ready.rules(rules, nil, s.wrong) // each bad file is in force as it was
}

func (srv *server) isNews(rules *descriptors.Ruleset) bool {
	before := srv.service.Rules()
	return before == nil || before.Hash != rules.Hash
}

// inForce puts rules in force, and logs and returns how they differ from those before, if there were any.
func (srv *server) inForce(rules *descriptors.Ruleset) (changes []string) {
	before := srv.service.Rules()
	srv.putInForce(rules)
	if before == nil {
		return nil
	}
	changes = rules.Changes(before)
	for _, c := range changes[:min(len(changes), maxLogged)] {
		srv.log.Info("rule changed", "change", c)
	}
	if more := len(changes) - maxLogged; more > 0 {
		srv.log.Info("rules changed", "more", more)
	}
	return changes
}

// refused notes a load that changed nothing.
func (srv *server) refused(source string, wrong []string) {
	srv.metrics.Refused()
	srv.reloads.add(newReload(reloadRefused, source, srv.service.Rules()).tell(nil, wrong))
}

// maxLogged bounds the lines of a kind that one reload writes.
const maxLogged = 50

func empty(rules *descriptors.Ruleset) bool {
	for range rules.Domains {
		return false
	}
	return true
}

// watchStore asks the store at the start until it answers, and again when calls of it have failed. It returns once ctx
// ends, or with an error if the store has not answered for as long as the settings grant it at the start.
func (srv *server) watchStore(ctx context.Context) error {
	if srv.redis == nil {
		if srv.settings.Redis != "" && srv.settings.Compat == "" {
			srv.log.Warn("Redis is not used, although it has an address: the store is to be memory",
				"mend", "drop --store (STORE, BACKEND_TYPE), or --redis (REDIS_URL)")
		}
		srv.log.Info("store ready", "store", "memory",
			"hint", "one process only; --redis redis://host:6379 shares counts")
		return nil
	}
	granted := time.Duration(srv.settings.RedisStart.MaxElapsed)
	if err := srv.awaitStore(ctx, granted); err != nil || ctx.Err() != nil {
		return err
	}
	srv.ready.store(storeOK, true)
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
			return nil
		}
		if srv.checkStore(ctx) == nil {
			continue // it was a call that failed, not the store
		}
		if err := srv.awaitStore(ctx, 0); err != nil || ctx.Err() != nil {
			return err
		}
		srv.log.Info("store answers again", "store", "redis", "address", srv.redis.Address(),
			"failures", srv.failing.ended())
		srv.ready.store(storeOK, true)
	}
}

// awaitStore returns once the store can be used or ctx ends, or with an error if that takes longer than granted; 0 is
// for ever.
func (srv *server) awaitStore(ctx context.Context, granted time.Duration) error {
	began := time.Now()
	for last := ""; ; {
		err := srv.checkStore(ctx)
		if err == nil {
			return nil
		}
		var refuses *redisstore.Unsupported
		srv.ready.store(err.Error(), !errors.As(err, &refuses) && time.Since(began) >= storePatience)
		if err.Error() != last {
			srv.log.Error("store not ready", "store", "redis", "address", srv.redis.Address(), "error", err)
			last = err.Error()
		}
		if granted > 0 && time.Since(began) >= granted {
			return fmt.Errorf("redis was not ready within --redis-startup-timeout (REDIS_STARTUP_MAX_ELAPSED_TIME) of %s: %w", granted, err)
		}
		select {
		case <-time.After(storeInterval):
		case <-ctx.Done():
			return nil
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
		if err != nil {
			srv.failing.suspect() // nobody may have asked it of late
		}
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
	lines sparing

	mu   sync.Mutex
	seen int
}

func newFailureLog(log *slog.Logger) *failureLog {
	return &failureLog{log: log, began: make(chan struct{}, 1)}
}

// suspect has the store asked whether it has failed.
func (f *failureLog) suspect() {
	select {
	case f.began <- struct{}{}:
	default:
	}
}

func (f *failureLog) note(err error) {
	f.suspect()
	f.mu.Lock()
	f.seen++
	f.mu.Unlock()
	missed, due := f.lines.next()
	if !due {
		return
	}
	line := []any{"error", err, "more_since_last_line", missed}
	if errors.Is(err, context.DeadlineExceeded) {
		line = append(line, "mend", "it took longer than --store-timeout (STORE_TIMEOUT), by default half of Envoy's timeout, of 20ms unless that is set: raise it, or bring Redis nearer")
	}
	f.log.Warn("store failed, on_store_failure answers", line...)
}

// sparing is for lines that others could write any number of. The zero value is ready, for any number of goroutines.
type sparing struct {
	interval time.Duration // 0: sparingInterval

	mu     sync.Mutex
	last   time.Time
	missed int
}

// sparingInterval is the shortest time between two such lines, unless there is another.
const sparingInterval = 10 * time.Second

// next tells whether a line is due, and how many were not since the last one.
func (s *sparing) next() (missed int, due bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.last) < cmp.Or(s.interval, sparingInterval) {
		s.missed++
		return 0, false
	}
	missed, s.missed, s.last = s.missed, 0, time.Now()
	return missed, true
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
