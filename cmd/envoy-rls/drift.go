package main

import (
	"sync/atomic"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/redisstore"
)

// driftPatience is how long replicas may run different rules: files reach them one after the other.
const driftPatience = time.Minute

// drift knows which replicas run other rules than this one. The zero value is ready.
type drift struct {
	since map[string]time.Time // they have differed, by name
	long  atomic.Int64
}

// note is told by one goroutine of all replicas at a time. Those whose rules aren't known don't differ.
func (d *drift) note(now time.Time, self redisstore.Replica, all []redisstore.Replica) {
	since, long := map[string]time.Time{}, int64(0)
	for _, r := range all {
		if r.Rules == self.Rules || r.Rules == "" || self.Rules == "" {
			continue
		}
		began, known := d.since[r.Name]
		if !known {
			began = now
		}
		since[r.Name] = began
		if now.Sub(began) > driftPatience {
			long++
		}
	}
	d.since = since
	d.long.Store(long)
}

// count is how many have differed for longer than driftPatience, as far as is known. Any goroutine may call it.
func (d *drift) count() int64 { return d.long.Load() }
