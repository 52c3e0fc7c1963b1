package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// listenUnix listens on a unix socket. One at whose other end nobody is any more, as after a crash, gives way; whatever else
// has its path stays.
func listenUnix(path string, mode fs.FileMode) (net.Listener, error) {
	const mend = "choose another path by --grpc-uds (GRPC_UDS)"
	if strings.HasPrefix(path, "@") { // it has a name, and no file
		l, err := net.Listen("unix", path)
		if err != nil {
			return nil, fmt.Errorf("gRPC can't listen: %w; %s", err, mend)
		}
		return l, nil
	}
	unlock, err := lockDir(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("gRPC can't listen on %s: %w; %s", path, err, mend)
	}
	defer unlock()
	if err := removeStale(path); err != nil {
		return nil, fmt.Errorf("gRPC can't listen on %s: %w; %s", path, err, mend)
	}
	l, err := net.Listen("unix", path)
	if errors.Is(err, syscall.EINVAL) {
		err = fmt.Errorf("%w (a socket's path has at most %d bytes)", err, len(syscall.RawSockaddrUnix{}.Path)-1)
	}
	if err != nil {
		return nil, fmt.Errorf("gRPC can't listen: %w; %s", err, mend)
	}
	if err := os.Chmod(path, mode); err != nil {
		return nil, errors.Join(fmt.Errorf("gRPC can't listen: %w", err), l.Close())
	}
	return l, nil
}

// lockDir lets one process at a time look for sockets in a directory and make its own: two that find the same one stale
// would remove each other's.
func lockDir(dir string) (unlock func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	_ = syscall.Flock(int(f.Fd()), syscall.LOCK_EX) // not every file system can
	return func() { _ = f.Close() }, nil
}

// removeStale removes a socket on which nobody listens. The error is for all else that is there.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode()&fs.ModeSocket == 0:
		return errors.New("there is a file that is not a socket")
	}
	c, err := (&net.Dialer{Timeout: time.Second}).DialContext(context.Background(), "unix", path)
	switch {
	case err == nil:
		_ = c.Close() // it was to see who is there
		return errors.New("another process listens on it")
	case !errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("there is a socket, and whether it is in use can't be seen: %w", err)
	}
	return os.Remove(path)
}
