package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

const (
	readyWithin = 15 * time.Second
	readyPoll   = 20 * time.Millisecond
	killAfter   = 5 * time.Second // of a SIGTERM that did not end it
	logTail     = 2000            // bytes of a server's log that an error shows
)

// command is a server to start.
type command struct {
	name  string
	argv  []string
	env   []string                    // beside this program's own
	dir   string                      // takes its log, and is its working directory
	ready func(context.Context) error // nil once it serves
}

// child is a server that this program started and has to end.
type child struct {
	command
	process *exec.Cmd
	end     context.CancelFunc
	ended   chan struct{} // closed once the process is gone
	log     string
}

// start starts a server and waits until it serves. If it does not, nothing of it is left.
func start(ctx context.Context, c command) (*child, error) {
	log, err := os.CreateTemp(c.dir, c.name+"-*.log")
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.name, err)
	}
	defer log.Close()
	ctx, end := context.WithCancel(ctx)
	process := exec.CommandContext(ctx, c.argv[0], c.argv[1:]...)
	process.Dir, process.Stdout, process.Stderr = c.dir, log, log
	process.Cancel = func() error { return process.Process.Signal(syscall.SIGTERM) }
	process.WaitDelay, process.Env = killAfter, append(os.Environ(), c.env...)
	if err := process.Start(); err != nil {
		end()
		return nil, fmt.Errorf("start %s: %w", c.name, err)
	}
	started := &child{command: c, process: process, end: end, ended: make(chan struct{}), log: log.Name()}
	go func() {
		defer close(started.ended)
		_ = process.Wait() // how it ended is in its log and its ProcessState
	}()
	if err := started.awaitReady(ctx); err != nil {
		_ = started.stop()
		return nil, err
	}
	return started, nil
}

func (c *child) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	poll := time.NewTicker(readyPoll)
	defer poll.Stop()
	for {
		err := c.ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-poll.C:
		case <-c.ended:
			return c.endedAlone()
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w; its log ends:\n%s", c.name, err, c.tail())
		}
	}
}

// stop ends the server and waits until it is gone. It is an error if it had ended before.
func (c *child) stop() error {
	select {
	case <-c.ended:
		c.end()
		return c.endedAlone()
	default:
		c.end()
		<-c.ended
		return nil
	}
}

func (c *child) endedAlone() error {
	return fmt.Errorf("%s ended by itself: %s; its log ends:\n%s", c.name, c.process.ProcessState, c.tail())
}

func (c *child) tail() []byte {
	log, err := os.ReadFile(c.log)
	if err != nil {
		return []byte(err.Error())
	}
	return log[max(0, len(log)-logTail):]
}
