package main

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
	"github.com/envoy-rls/envoy-rls/pkg/redisstore"
)

func noRulesYet() string { return "" }

func TestAReplicaWithAnAddressOfEachIPVersionIsOne(t *testing.T) {
	for all, want := range map[string]string{
		"10.0.0.1 10.0.0.2":                        "10.0.0.1 10.0.0.2",
		"fd00::1 fd00::2":                          "fd00::1 fd00::2",
		"fd00::1 10.0.0.1 fd00::2 ::ffff:10.0.0.2": "10.0.0.1 10.0.0.2",
		"10.0.0.1 fd00::1 fd00::2":                 "fd00::1 fd00::2",
	} {
		var addresses []netip.Addr
		for _, a := range strings.Fields(all) {
			addresses = append(addresses, netip.MustParseAddr(a))
		}
		if got := strings.Trim(fmt.Sprint(ofOneVersion(addresses)), "[]"); got != want {
			t.Errorf("%s: %s, want %s", all, got, want)
		}
	}
}

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
		proctest.Eventually(t, "a replica beats", func() bool {
			c.update(t.Context())
			return c.sharing() != nil
		})
	}
	for _, c := range []struct {
		name   string
		census *census
		want   int
	}{
		{"given", newCensus(&settings{Replicas: 7}, nil, noRulesYet), 7},
		{"by heartbeats", beating[2], 3},
		{"by DNS", newCensus(&settings{Peers: "localhost"}, nil, noRulesYet), 1},
		{"by a name that has no address", newCensus(&settings{Peers: "nobody.invalid"}, nil, noRulesYet), 1},
	} {
		proctest.Eventually(t, fmt.Sprintf("%s there are %d replicas", c.name, c.want), func() bool {
			c.census.update(t.Context())
			return c.census.count() == c.want
		})
	}
	r.Kill()
	beating[2].update(t.Context())
	if n := beating[2].count(); n != 3 {
		t.Errorf("without Redis there are %d replicas, and were 3", n)
	}
}
