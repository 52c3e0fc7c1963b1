package descriptors

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// quiet is how long nothing may happen to the files before they are read: an editor, or Kubernetes,
	// writes more than once.
	quiet = 100 * time.Millisecond
	// pollInterval is how often files are read although nothing was said to have happened to them, as on
	// network file systems.
	pollInterval = 10 * time.Second
)

// Watch calls changed with what Read returns: at once, and again whenever that has changed, until ctx ends. It sees
// edits in place, renames, new and removed directories and the swapping of links. Calls of changed follow each
// other.
func (s Source) Watch(ctx context.Context, changed func([]File, error)) {
	w := &watcher{source: s, watched: map[string]os.FileInfo{}}
	var err error
	if w.events, err = fsnotify.NewWatcher(); err == nil { // without, there is the poll
		defer func() { _ = w.events.Close() }()
	}
	last := ""
	for {
		files, err := s.Read()
		if now := state(files, err); now != last {
			last = now
			changed(files, err)
		}
		if w.follow() {
			continue // what is watched only now may have changed meanwhile
		}
		if !w.wait(ctx) {
			return
		}
	}
}

// state is equal for equal results of Read.
func state(files []File, err error) string {
	h := sha256.New()
	fmt.Fprintf(h, "%v\n", err)
	for _, f := range files {
		fmt.Fprintf(h, "%q %d %v\n", f.Name, len(f.Data), f.Unread)
		_, _ = h.Write(f.Data) // a hash takes everything
	}
	return string(h.Sum(nil))
}

type watcher struct {
	source  Source
	events  *fsnotify.Watcher      // nil: not to be had
	watched map[string]os.FileInfo // directories: a name may come to mean another one
}

// follow watches all directories that matter now, and tells whether there are new ones among them.
func (w *watcher) follow() bool {
	if w.events == nil {
		return false
	}
	dirs := map[string]bool{}
	for _, p := range w.source.Paths {
		addLinks(p, dirs)
		w.addDirs(p, dirs, maxDirDepth)
	}
	for _, dir := range w.events.WatchList() {
		info, err := os.Stat(dir)
		if dirs[dir] && err == nil && w.watched[dir] != nil && os.SameFile(info, w.watched[dir]) {
			delete(dirs, dir)
			continue
		}
		_ = w.events.Remove(dir) // it may be gone
	}
	added := false
	for dir := range dirs {
		info, err := os.Stat(dir)
		if err == nil && w.events.Add(dir) == nil {
			w.watched[dir] = info
			added = true
		}
	}
	return added
}

// addLinks adds the directories of path and of each link on the way to it, which may be swapped.
func addLinks(path string, dirs map[string]bool) {
	dirs[filepath.Dir(path)] = true
	for p := filepath.Clean(path); p != filepath.Dir(p); p = filepath.Dir(p) {
		if info, err := os.Lstat(p); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			dirs[filepath.Dir(p)] = true
		}
	}
}

// addDirs adds path, if it is a directory, and all below that Read reads.
func (w *watcher) addDirs(path string, dirs map[string]bool, depth int) {
	entries, err := os.ReadDir(path)
	if err != nil || depth == 0 {
		return
	}
	dirs[path] = true
	for _, e := range entries {
		name := filepath.Join(path, e.Name())
		if info, err := os.Stat(name); err == nil && info.IsDir() && !w.source.hides(e.Name()) {
			w.addDirs(name, dirs, depth-1)
		}
	}
}

// wait returns true when it is time to read the files again, and false when ctx ends.
func (w *watcher) wait(ctx context.Context) bool {
	poll := time.NewTimer(pollInterval)
	defer poll.Stop()
	var events chan fsnotify.Event
	var errs chan error
	if w.events != nil {
		events, errs = w.events.Events, w.events.Errors
	}
	var settled <-chan time.Time
	for {
		select {
		case <-events:
			settled = time.After(quiet)
		case <-errs: //nolint:errcheck // too many events at once, say: reading again is the answer
			settled = time.After(quiet)
		case <-settled:
			return true
		case <-poll.C:
			return true
		case <-ctx.Done():
			return false
		}
	}
}
