package main

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/envoy-rls/envoy-rls/internal/simulate"
	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// contender is a limit that the patterns are run against.
type contender struct {
	name, short string
	limit       limiter.Limit
	// promise is the most that it lets pass in any window, in hits.
	promise int
}

var contenders = []contender{
	{"fixed_window", "", limiter.Limit{Algorithm: limiter.FixedWindow}, 2 * limit},
	{"sliding_window", "", limiter.Limit{Algorithm: limiter.SlidingWindow}, 2*limit - 1},
	{"sliding_log", "", limiter.Limit{Algorithm: limiter.SlidingLog}, limit},
	{"token_bucket", "burst L", limiter.Limit{Algorithm: limiter.TokenBucket, Burst: limit}, 2 * limit},
	{"token_bucket", "burst L/10", limiter.Limit{Algorithm: limiter.TokenBucket, Burst: limit / 10}, limit + limit/10},
}

// log is which contender is exact.
const exact = 2

// play returns the instants of the hits that a limit admits.
func play(l limiter.Limit, hits []int64) ([]int64, error) {
	rule := fmt.Sprintf("unit: second, requests_per_unit: %d, algorithm: %s", limit, l.Algorithm)
	if l.Algorithm.HasBurst() {
		rule += fmt.Sprintf(", burst: %d", l.Burst)
	}
	rules, problems := descriptors.Compile([]descriptors.File{{
		Data: fmt.Appendf(nil, "domain: figures\ndescriptors: [{key: hit, rate_limit: {%s}}]", rule),
	}}, descriptors.Options{})
	if descriptors.HasErrors(problems) {
		return nil, fmt.Errorf("the limit of a figure: %v", problems)
	}
	set := simulate.NewSet(rules, simulate.Options{Domain: "figures"})
	request := simulate.Request{Descriptors: [][]descriptors.Entry{{{Key: "hit"}}}}
	var admitted []int64
	for _, at := range hits {
		request.At = at
		if !set.Ask(&request).Refused {
			admitted = append(admitted, at)
		}
	}
	return admitted, nil
}

// most returns how many hits the fullest interval of a length holds, and which is its last. An interval leaves
// out its beginning.
func most(hits []int64, length int64) (count, last int) {
	first := 0
	for i, at := range hits {
		for hits[first] <= at-length {
			first++
		}
		if i-first+1 > count {
			count, last = i-first+1, i
		}
	}
	return count, last
}

// result is what came of a pattern under a contender.
type result struct {
	admitted    int // in all
	inWindow    int // in the fullest window, wherever it begins
	inTwentieth int // in the fullest twentieth of a window
}

// measure runs all patterns against all contenders: results by pattern, then contender.
func measure() ([][]result, error) {
	results := make([][]result, len(patterns))
	for p, pattern := range patterns {
		hits := pattern.hits(rand.New(rand.NewPCG(1, uint64(p))))
		for _, c := range contenders {
			admitted, err := play(c.limit, hits)
			if err != nil {
				return nil, err
			}
			r := result{admitted: len(admitted)}
			r.inWindow, _ = most(admitted, window)
			r.inTwentieth, _ = most(admitted, window/20)
			results[p] = append(results[p], r)
		}
	}
	return results, nil
}

// hundredths prints a quotient with two digits, in whole numbers.
func hundredths(a, b int) string {
	n := (200*a + b) / (2 * b)
	return fmt.Sprintf("%d.%02d", n/100, n%100)
}

// table is the results for people to read.
func table(results [][]result) string {
	var out strings.Builder
	out.WriteString("| traffic |")
	for _, c := range contenders {
		fmt.Fprintf(&out, " `%s`", c.name)
		if c.short != "" {
			fmt.Fprintf(&out, ", %s", c.short)
		}
		out.WriteString(" |")
	}
	out.WriteString("\n|---|" + strings.Repeat("---|", len(contenders)) + "\n")
	for p, pattern := range patterns {
		fmt.Fprintf(&out, "| %s |", pattern.name)
		for _, r := range results[p] {
			fmt.Fprintf(&out, " %s, %s |", hundredths(r.inWindow, limit), hundredths(r.admitted, results[p][exact].admitted))
		}
		out.WriteString("\n")
	}
	out.WriteString("| the same, most in W/20 |")
	for _, r := range results[len(patterns)-1] {
		fmt.Fprintf(&out, " %s |", hundredths(r.inTwentieth, limit))
	}
	out.WriteString("\n")
	return out.String()
}
