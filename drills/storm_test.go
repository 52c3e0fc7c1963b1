package drills

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// stormKeys are the keys of requests that have several, with a limit each that gets no room again in a decade. They
// differ, so that now one refuses a request and now another; that of team is two limits, alike.
var stormKeys = []struct {
	key     string
	limit   int
	further string // of its rate_limit
}{
	{"account", 900, "algorithm: fixed_window"},
	{"address", 700, "algorithm: token_bucket"},
	{"path", 800, "algorithm: sliding_window"},
	{"plan", 1000, "algorithm: leaky_bucket, burst: 1000"},
	{"device", 120, "algorithm: sliding_log"},
	{"team", 600, "algorithm: fixed_window"},
}

func stormRules() map[string]string {
	rules := &strings.Builder{}
	for _, k := range stormKeys {
		limit := fmt.Sprintf("{%s, requests_per_unit: %d, %s}", decade, k.limit, k.further)
		if k.key == "team" {
			limit += ", " + strings.ReplaceAll(limit, "fixed_window", "token_bucket")
		}
		fmt.Fprintf(rules, "  - {key: %s, on_store_failure: error, rate_limits: [%s]}\n", k.key, limit)
	}
	return map[string]string{"storm": rules.String()}
}

// storm is what became of requests, and how many hits of each of stormKeys were admitted.
type storm struct {
	admitted        [6]atomic.Int64
	refused, failed atomic.Int64
}

// ask asks for two or three of stormKeys.
func (s *storm) ask(client ratelimit.RateLimitServiceClient, random *rand.Rand) {
	req := &ratelimit.RateLimitRequest{Domain: "storm"}
	keys := random.Perm(len(stormKeys))[:2+random.IntN(2)]
	for _, k := range keys {
		req.Descriptors = append(req.Descriptors, request("storm", stormKeys[k].key, "one").GetDescriptors()...)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	answer, err := client.ShouldRateLimit(ctx, req)
	switch {
	case err != nil || answer.GetDynamicMetadata() != nil:
		s.failed.Add(1)
	case answer.GetOverallCode() == ratelimit.RateLimitResponse_OVER_LIMIT:
		s.refused.Add(1)
	default:
		for _, k := range keys {
			s.admitted[k].Add(1)
		}
	}
}

// TestNoLimitIsExceededByRequestsOverSeveralTags has a cluster decide requests in parts, each under a tag of its own, of
// which most are refused by one part and charged by another; one replica remembers what is exhausted, and one doesn't.
func TestNoLimitIsExceededByRequestsOverSeveralTags(t *testing.T) {
	t.Parallel()
	const callers, each = 32, 200
	c := proctest.StartRedisCluster(t, 3, false)
	rules := rulesIn(t, stormRules())
	var sites []*site
	for _, memory := range []string{"0", "8MiB"} {
		sites = append(sites, startSite(t, "--redis="+c.URL(), "--store-timeout=20s", "--deny-cache="+memory, rules))
	}
	s, all := &storm{}, sync.WaitGroup{}
	for caller := range callers {
		all.Go(func() {
			random := rand.New(rand.NewPCG(uint64(caller), 1))
			for range each {
				s.ask(sites[caller%len(sites)].client, random)
			}
		})
	}
	all.Wait()
	t.Logf("of %d requests %d were refused", callers*each, s.refused.Load())
	if n := s.failed.Load(); n > 0 {
		t.Errorf("%d requests were not decided by Redis", n)
	}
	for i, k := range stormKeys {
		admitted, left := int(s.admitted[i].Load()), 0
		if admitted > k.limit {
			t.Errorf("%s has admitted %d, and its limit is %d", k.key, admitted, k.limit)
		}
		proctest.Eventually(t, k.key+" has back what others have refused", func() bool {
			left = sites[0].left("storm", k.key, "one")
			return left >= k.limit-admitted
		})
		t.Logf("%s has admitted %d of %d, and %d are left", k.key, admitted, k.limit, left)
		if left > k.limit-admitted {
			t.Errorf("%s has %d left of %d, of which %d are admitted", k.key, left, k.limit, admitted)
		}
	}
}
