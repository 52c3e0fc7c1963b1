package main

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestTheBaselineCountsEachRequestAndSetsItsExpiry(t *testing.T) {
	workload, err := newWorkload("hot", benchDomain)
	if err != nil {
		t.Fatal(err)
	}
	running, err := newTestRig(t).baseline(t.Context(), workload)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := running.stop(); err != nil {
			t.Error(err)
		}
	})
	pressure := gentle()
	pressure.Warmup = 0
	result, err := running.trial(pressure, 100*time.Millisecond).Run(t.Context())
	if err != nil || result.Errors != 0 || result.CPU[0].Name != redisName {
		t.Fatalf("%+v, %v", result, err)
	}
	client := redis.NewClient(&redis.Options{Addr: running.address})
	t.Cleanup(func() { _ = client.Close() })
	name := string(running.workload.Requests[0])
	greetings := uint64(pressure.Connections)
	if count, err := client.Get(t.Context(), name).Uint64(); err != nil || count != result.Decisions+greetings {
		t.Errorf("%s counts %d, %v; %d decisions", name, count, err, result.Decisions)
	}
	if left := client.TTL(t.Context(), name).Val(); left <= 0 || left > baselinePeriod {
		t.Errorf("%s expires in %v", name, left)
	}
}
