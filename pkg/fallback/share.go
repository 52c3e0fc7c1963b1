package fallback

import (
	"fmt"
	"math"

	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// Share says which part of a limit a replica grants by itself.
type Share uint8

const (
	// Balanced grants an equal part and twice its square root on top, so that clients whose requests are spread at
	// random are not refused within their limit. All N replicas together admit at most L + 2√(L·N) + N of a
	// limit L.
	Balanced Share = iota
	// Strict grants an equal part, rounded up: at most L + N in all, at the price of clients that are refused.
	Strict
	// Full grants the whole limit: at most L·N in all.
	Full
)

var shares = [...]string{Balanced: "balanced", Strict: "strict", Full: "full"}

// String is the share's name in settings.
func (s Share) String() string { return shares[s] }

// ParseShare is the inverse of Share.String.
func ParseShare(name string) (Share, error) {
	for s, n := range shares {
		if n == name {
			return Share(s), nil
		}
	}
	return 0, fmt.Errorf("unknown share %q; there is balanced, strict, full", name)
}

// Of is a replica's part of n hits, of which there are so many replicas.
func (s Share) Of(n int64, replicas int) int64 {
	if s == Full || replicas <= 1 || n <= 0 {
		return max(n, 0)
	}
	part := float64(n) / float64(replicas)
	if s == Balanced {
		part += 2 * math.Sqrt(part)
	}
	return min(n, int64(math.Ceil(part)))
}

// of is a replica's part of a limit.
func (s Share) of(l *limiter.Limit, replicas int) *limiter.Limit {
	part := *l
	part.Requests = uint32(s.Of(int64(l.Requests), replicas))
	part.Burst = uint32(s.Of(int64(l.Burst), replicas))
	return &part
}
