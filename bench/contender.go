package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// contender is a kind of server in a comparison.
type contender struct {
	name      string
	scenarios []string // the tasks that it can be sent; nil is all
	start     func(context.Context, *Workload) (*server, error)
}

// Names of the stores with which the service is measured, and by which it is known in the tables.
const (
	memoryName = "memory"
	redisStore = "redis"
)

// Binary is another build of envoy-rls, to be measured beside the first.
type Binary struct{ Name, Path string }

// UnmarshalText reads name=path.
func (b *Binary) UnmarshalText(text []byte) error {
	name, path, found := strings.Cut(string(text), "=")
	if !found || name == "" || path == "" {
		return fmt.Errorf("build %q is not name=path", text)
	}
	path, err := filepath.Abs(path) // servers start in a directory of their own
	*b = Binary{name, path}
	return err
}

// serverName is what a build of the service with a store is called in tables: that of --binary by its store alone.
func (b Binary) serverName(store string) string {
	if b.Name == "" {
		return store
	}
	return b.Name + "/" + store
}

// contenders gives the build with each of the stores.
func (b Binary) contenders(rig *rig, stores []string) []contender {
	service := envoyRLS{rig, b.Path}
	var all []contender
	if slices.Contains(stores, memoryName) {
		all = append(all, contender{name: b.serverName(memoryName), start: service.memory})
	}
	if slices.Contains(stores, redisStore) {
		all = append(all, contender{name: b.serverName(redisStore), start: service.redis})
	}
	return all
}
