package main

import (
	"net/http"
	"sync"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/admin"
	"github.com/envoy-rls/envoy-rls/pkg/denycache"
	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/overrides"
)

// operations are what operators can change while the service runs.
type operations struct {
	guard     *admin.Guard
	overrides *overrides.Set
	counters  []admin.Counters
	denials   *denycache.Store // nil: none are remembered
	level     *levelSwitch

	forcing sync.Mutex // held while rules and overrides are put in force
}

// openOperations makes them, once there is a service.
func (srv *server) openOperations() (err error) {
	srv.level = &levelSwitch{level: srv.settings.level, log: srv.log}
	srv.guard, err = admin.NewGuard(srv.settings.Admin.TokenFile, isLoopback(srv.settings.AdminHost))
	var board overrides.Board = srv.redis
	if srv.redis == nil {
		board = overrides.NewBoard(time.Now)
	}
	count := srv.metrics.Overrides()
	srv.overrides = overrides.New(board, overrides.Options{
		Log: srv.log,
		Changed: func(active []overrides.Override) {
			srv.putInForce(nil)
			count(plain(active))
		},
		Reset: func() {
			if srv.denials != nil {
				srv.denials.Reset()
			}
		},
	})
	return err
}

func (srv *server) api() http.Handler {
	return admin.New(admin.Options{
		Rules: srv.service.Rules, Store: srv.store, Counters: srv.counters, Overrides: srv.overrides, Guard: srv.guard, Log: srv.log,
	})
}

// putInForce puts rules in force, with the overrides that are active; nil is the rules that there are.
func (srv *server) putInForce(rules *descriptors.Ruleset) {
	srv.forcing.Lock()
	defer srv.forcing.Unlock()
	if rules == nil {
		rules = srv.service.Rules()
	}
	if rules == nil {
		return // they will come, and find the overrides then
	}
	list := plain(srv.overrides.List())
	with, problems := rules.WithOverrides(list)
	srv.service.SetRules(with)
	for i, problem := range problems {
		if problem != nil {
			srv.log.Warn("an override does nothing", "id", list[i].ID, "problem", problem)
		}
	}
}

// plain is what rules need to know of overrides.
func plain(active []overrides.Override) []descriptors.Override {
	list := make([]descriptors.Override, len(active))
	for i := range active {
		list[i] = active[i].Override
	}
	return list
}
