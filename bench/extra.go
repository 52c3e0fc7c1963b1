package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// Extra is a server that somebody else started and ends.
type Extra struct {
	Name      string
	Address   string
	Processes []Process
}

// UnmarshalText reads name=host:port@pid,pid. The pids, with their @, may be left out: then no CPU time is counted.
func (e *Extra) UnmarshalText(text []byte) error {
	name, rest, found := strings.Cut(string(text), "=")
	if !found || name == "" {
		return fmt.Errorf("server %q is not name=host:port@pid,pid", text)
	}
	address, pids, counted := strings.Cut(rest, "@")
	if err := checkLoopback(address); err != nil {
		return err
	}
	*e = Extra{Name: name, Address: address}
	if !counted {
		return nil
	}
	for number := range strings.SplitSeq(pids, ",") {
		pid, err := strconv.Atoi(number)
		if err != nil || pid <= 0 {
			return fmt.Errorf("server %q: %q is not a pid", text, number)
		}
		e.Processes = append(e.Processes, Process{"pid " + number, pid})
	}
	return nil
}

func (e *Extra) start(_ context.Context, workload *Workload) (*server, error) {
	return &server{address: e.Address, processes: e.Processes, workload: workload, counts: true}, nil
}
