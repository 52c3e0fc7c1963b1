package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// fleet is which replicas a command asks, through their admin ports: one, or all.
type fleet struct {
	adminClient
	Fleet []string `placeholder:"NAME:PORT,…" help:"Ask all replicas instead: every address that a name has, as a headless Service's, or the host:port of each. Their admin must listen there: --admin-host (DEBUG_HOST)."`
}

const (
	// askedAtOnce bounds the replicas that are asked at the same time.
	askedAtOnce = 32
	// statusPatience is the longest wait for what a replica knows by itself.
	statusPatience = 2 * time.Second
)

// ask asks all replicas at once, each for no longer than Timeout, and returns their replies in order of address. The
// error is one of the flags; that of a replica is in its reply.
func (f *fleet) ask(ctx context.Context, r adminRequest) ([]adminReply, error) {
	bases, lost, err := f.replicas(ctx)
	if err != nil {
		return nil, err
	}
	return append(f.askEach(ctx, bases, r), lost...), nil
}

func (f *fleet) askEach(ctx context.Context, bases []string, r adminRequest) []adminReply {
	replies := make([]adminReply, len(bases))
	slots := make(chan struct{}, askedAtOnce)
	var all sync.WaitGroup
	for i, base := range bases {
		slots <- struct{}{}
		all.Go(func() {
			replies[i] = f.askOne(ctx, base, r)
			<-slots
		})
	}
	all.Wait()
	return replies
}

// replicas are the URLs of all replicas, without the path, and replies for names that can't be looked up.
func (f *fleet) replicas(ctx context.Context) (bases []string, lost []adminReply, err error) {
	if len(f.Fleet) == 0 {
		base, err := adminBase("--admin (ENVOY_RLS_ADMIN)", f.Admin)
		return []string{base}, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, min(time.Duration(f.Timeout), statusPatience))
	defer cancel()
	for _, place := range f.Fleet {
		host, port, err := net.SplitHostPort(place)
		if err != nil || host == "" || notPort(port) {
			return nil, nil, fmt.Errorf("--fleet is %q: want name:port, or the host:port of each replica with commas between", place)
		}
		addresses, err := replicasAt(ctx, host)
		if err != nil {
			lost = append(lost, adminReply{Replica: place, Err: err})
		}
		for _, a := range addresses {
			bases = append(bases, "http://"+net.JoinHostPort(a.String(), port))
		}
	}
	slices.Sort(bases)
	return slices.Compact(bases), lost, nil
}

// stores are the URLs of one replica for each store that replicas count in, and replies for those that don't tell theirs.
func (f *fleet) stores(ctx context.Context) (bases []string, lost []adminReply, err error) {
	all, lost, err := f.replicas(ctx)
	if err != nil || len(f.Fleet) == 0 {
		return all, lost, err
	}
	quick := *f
	quick.Timeout = min(f.Timeout, duration(statusPatience))
	var known []shownStore
	for i, reply := range quick.askEach(ctx, all, adminRequest{method: http.MethodGet, path: statusPath}) {
		var status shownStatus
		switch {
		case !reply.read(&status):
			lost = append(lost, reply)
		case !slices.ContainsFunc(known, status.Store.sharedWith):
			known, bases = append(known, status.Store), append(bases, all[i])
		}
	}
	return bases, lost, nil
}

// complain prints why replicas did not answer, and returns how many did.
func (f *fleet) complain(s streams, replies []adminReply) (answered int) {
	for i := range replies {
		err := replies[i].problem()
		var own refusal
		switch {
		case err == nil:
			answered++
			continue
		case len(f.Fleet) > 0 && errors.As(err, &own):
			err = fmt.Errorf("%s: %w", replies[i].Replica, err)
		}
		s.complain(err)
	}
	return answered
}

// exitOfFleet is the exit status when so many of all replicas answered, as an error or nil.
func exitOfFleet(answered, all int) error {
	switch answered {
	case all:
		return nil
	case 0:
		return exitCode(exitUsage)
	}
	return exitCode(exitError)
}
