package main

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/redisstore"
	"github.com/envoy-rls/envoy-rls/pkg/xds"
)

// snapshotPlace is where the last rules of a control plane are kept.
type snapshotPlace interface {
	// load returns nil if nothing is kept.
	load(ctx context.Context) ([]byte, error)
	save(ctx context.Context, snapshot []byte) error
}

// snapshotPlace is the one that the settings say, or nil.
func (srv *server) snapshotPlace() snapshotPlace {
	switch place := srv.settings.ConfigSnapshot; place {
	case "":
		return nil
	case snapshotRedis:
		return redisSnapshot{srv.redis, "rules:" + srv.settings.XDS.NodeID}
	default:
		return fileSnapshot(place)
	}
}

type redisSnapshot struct {
	store *redisstore.Store
	name  string
}

func (r redisSnapshot) load(ctx context.Context) ([]byte, error) { return r.store.Kept(ctx, r.name) }

func (r redisSnapshot) save(ctx context.Context, snapshot []byte) error {
	return r.store.Keep(ctx, r.name, snapshot)
}

// fileSnapshot is the name of a file.
type fileSnapshot string

func (f fileSnapshot) load(context.Context) ([]byte, error) {
	b, err := os.ReadFile(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return b, err
}

// save leaves the old file or the new one, whole, whenever the machine stops.
func (f fileSnapshot) save(_ context.Context, snapshot []byte) (err error) {
	temporary, err := os.CreateTemp(filepath.Dir(string(f)), "."+filepath.Base(string(f))+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(temporary.Name()) // the first error is told
		}
	}()
	_, err = temporary.Write(snapshot)
	if err = errors.Join(err, temporary.Sync(), temporary.Close()); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), string(f))
}

const (
	// snapshotTimeout bounds a try to load or to save.
	snapshotTimeout = 5 * time.Second
	// snapshotInterval is how long after one that failed comes the next.
	snapshotInterval = 2 * time.Second
)

// snapshots keeps the last set of a control plane.
type snapshots struct {
	place snapshotPlace
	log   *slog.Logger
	last  chan *xds.Set // the one to be saved, if any
}

func newSnapshots(place snapshotPlace, log *slog.Logger) *snapshots {
	return &snapshots{place: place, log: log, last: make(chan *xds.Set, 1)}
}

// keep has a set saved, soon. It is for one goroutine.
func (s *snapshots) keep(set *xds.Set) {
	select {
	case <-s.last: // it is too old now
	default:
	}
	s.last <- set
}

// run saves sets until ctx ends.
func (s *snapshots) run(ctx context.Context) {
	for {
		select {
		case set := <-s.last:
			for set != nil {
				set = s.save(ctx, set)
			}
		case <-ctx.Done():
			return
		}
	}
}

// save tries until the set is saved, and returns nil, or until there is a newer one, and returns that.
func (s *snapshots) save(ctx context.Context, set *xds.Set) (newer *xds.Set) {
	snapshot, err := set.Snapshot(time.Now())
	if err != nil {
		s.log.Error("the snapshot of the rules can't be made", "error", err)
		return nil
	}
	for failed := false; ; failed = true {
		trying, cancel := context.WithTimeout(ctx, snapshotTimeout)
		err := s.place.save(trying, snapshot)
		cancel()
		if err == nil {
			s.log.Debug("snapshot of the rules saved", "version", set.Version, "bytes", len(snapshot))
			return nil
		}
		if !failed {
			s.log.Warn("the snapshot of the rules can't be saved, and is tried again", "error", err)
		}
		select {
		case newer := <-s.last:
			return newer
		case <-time.After(snapshotInterval):
		case <-ctx.Done():
			return nil
		}
	}
}

// load returns the set that was kept last, or nil if there is none that can be used. It tries until it knows.
func (s *snapshots) load(ctx context.Context, limit int) *xds.Set {
	for failed := false; ; failed = true {
		trying, cancel := context.WithTimeout(ctx, snapshotTimeout)
		snapshot, err := s.place.load(trying)
		cancel()
		if err == nil {
			return s.restore(snapshot, limit)
		}
		if !failed {
			s.log.Warn("the snapshot of the rules can't be read, and is tried again", "error", err)
		}
		select {
		case <-time.After(snapshotInterval):
		case <-ctx.Done():
			return nil
		}
	}
}

func (s *snapshots) restore(snapshot []byte, limit int) *xds.Set {
	if snapshot == nil {
		s.log.Info("there is no snapshot of rules yet")
		return nil
	}
	set, err := xds.Restore(snapshot, limit)
	if err != nil {
		s.log.Warn("the snapshot of the rules is not used", "error", err)
	}
	return set
}
