package main

import (
	"errors"
	"net"
	"path/filepath"
	"sync"
	"testing"
)

// TestOfManyThatFindAStaleSocketOneListens has them look at once: none may remove the socket that another has just made.
func TestOfManyThatFindAStaleSocketOneListens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	for range 50 {
		stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		stale.SetUnlinkOnClose(false)
		if err := stale.Close(); err != nil {
			t.Fatal(err)
		}
		listeners := listenAtOnce(path, 16)
		if len(listeners) != 1 {
			t.Fatalf("%d listen on the same path", len(listeners))
		}
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(c.Close(), listeners[0].Close()); err != nil {
			t.Error(err)
		}
	}
}

func listenAtOnce(path string, n int) (listeners []net.Listener) {
	var mu sync.Mutex
	var starts sync.WaitGroup
	for range n {
		starts.Go(func() {
			l, err := listenUnix(path, 0o600)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				listeners = append(listeners, l)
			}
		})
	}
	starts.Wait()
	return listeners
}
