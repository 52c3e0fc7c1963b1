package main

import (
	"testing"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
	"github.com/envoy-rls/envoy-rls/pkg/redisstore"
)

func noRulesYet() string { return "" }

func TestTheNumberOfReplicasIsGivenOrFoundOut(t *testing.T) {
	r := proctest.StartRedis(t)
	open := func() *redisstore.Store {
		s, err := redisstore.Open(redisstore.Options{Address: r.Addr})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	var beating []*census
	for range 3 {
		beating = append(beating, newCensus(&settings{}, open(), noRulesYet))
	}
	for _, c := range beating {
		c.update(t.Context())
	}
	for _, c := range []struct {
		name     string
		census   *census
		min, max int
	}{
		{"given", newCensus(&settings{Replicas: 7}, nil, noRulesYet), 7, 7},
		{"by heartbeats", beating[2], 3, 3},
		{"by DNS", newCensus(&settings{Peers: "localhost"}, nil, noRulesYet), 1, 2},
		{"by a name that has no address", newCensus(&settings{Peers: "nobody.invalid"}, nil, noRulesYet), 1, 1},
	} {
		c.census.update(t.Context())
		if n := c.census.count(); n < c.min || n > c.max {
			t.Errorf("%s: %d replicas", c.name, n)
		}
	}
	r.Kill()
	beating[2].update(t.Context())
	if n := beating[2].count(); n != 3 {
		t.Errorf("without Redis there are %d replicas, and were 3", n)
	}
}
