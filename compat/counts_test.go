package compat

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// sample is a line of /metrics.
type sample struct {
	name   string
	labels map[string]string
	value  float64
}

type samples []sample

var (
	samplePattern = regexp.MustCompile(`^(\w+)(?:\{(.*)\})? (\S+)$`)
	labelPattern  = regexp.MustCompile(`(\w+)=("(?:[^"\\]|\\.)*")`)
)

func scrape(url string) (samples, error) {
	client := http.Client{Timeout: patience}
	r, err := client.Get(url)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Body.Close() }() // it has been read
	var list samples
	lines := bufio.NewScanner(r.Body)
	for lines.Scan() {
		found := samplePattern.FindStringSubmatch(lines.Text())
		if found == nil {
			continue // a comment
		}
		s := sample{name: found[1], labels: map[string]string{}}
		for _, label := range labelPattern.FindAllStringSubmatch(found[2], -1) {
			if s.labels[label[1]], err = strconv.Unquote(label[2]); err != nil {
				return nil, fmt.Errorf("%s: %w", lines.Text(), err)
			}
		}
		if s.value, err = strconv.ParseFloat(found[3], 64); err != nil {
			return nil, fmt.Errorf("%s: %w", lines.Text(), err)
		}
		list = append(list, s)
	}
	return list, lines.Err()
}

// sum adds up the samples of a name and one of some values of a label.
func (list samples) sum(name, label string, values ...string) float64 {
	total := 0.0
	for _, s := range list {
		for _, v := range values {
			if s.name == name && s.labels[label] == v {
				total += s.value
			}
		}
	}
	return total
}

// like adds up the samples whose names contain a word.
func (list samples) like(word string) float64 {
	total := 0.0
	for _, s := range list {
		if strings.Contains(s.name, word) {
			total += s.value
		}
	}
	return total
}

// of are the samples of the rule that the replaced service would name key.
func (list samples) of(key string) samples {
	var own samples
	for _, s := range list {
		if rule, ok := s.labels["rule"]; ok && cleaned(rule) == key {
			own = append(own, s)
		}
	}
	return own
}

var addressPattern = regexp.MustCompile(`\d+\.\d+\.\d+\.\d+`)

// cleaned is a rule's path as it stands in the replaced service's names.
func cleaned(path string) string {
	path = strings.NewReplacer(":", "_", "|", "_").Replace(path)
	return addressPattern.ReplaceAllStringFunc(path, func(address string) string {
		return strings.ReplaceAll(address, ".", "_")
	})
}

// stat is the counter that the replaced service has under a name, from ours of the same meaning. What we don't
// count is 0, as everything is that was never emitted.
func (list samples) stat(name string) float64 {
	if rest, ok := strings.CutPrefix(name, "~"); ok {
		dot := strings.LastIndexByte(rest, '.')
		return list.ruleStat(rest[:dot], rest[dot+1:])
	}
	switch strings.TrimPrefix(name, "ratelimit.service.") {
	case "call.should_rate_limit.service_error":
		return list.sum("envoy_rls_requests_total", "code", "error")
	case "config_load_error":
		return list.like("envoy_rls_config_reload_failures_total")
	case "config_load_success": // how often isn't counted, whether is
		return min(1, list.like("envoy_rls_config_last_reload_success_timestamp_seconds"))
	case "global_shadow_mode":
		return list.like("global_shadow")
	}
	return -1
}

func (list samples) ruleStat(key, kind string) float64 {
	const hits = "envoy_rls_hits_total"
	own := list.of(key)
	switch kind {
	case "domain_not_found": // names of domains that a client chooses are no labels
		return list.sum("envoy_rls_unmatched_descriptors_total", "domain", "")
	case "total_hits": // of what is replaced or unlimited the replaced service counts nothing
		return own.sum(hits, "result", "ok", "near_limit", "over_limit", "shadow_over_limit", "refused_within_limit")
	case "within_limit":
		return own.sum(hits, "result", "ok", "near_limit")
	case "near_limit":
		return own.like("near_limit")
	case "over_limit":
		return own.sum(hits, "result", "over_limit", "shadow_over_limit")
	case "shadow_mode":
		return own.sum(hits, "result", "shadow_over_limit")
	case "over_limit_with_local_cache":
		return own.like("local_cache") + own.like("deny_cache")
	}
	return -1
}

// counts are the counters in Redis whose keys begin with prefix, under the names that the replaced service would
// give them.
func counts(ctx context.Context, client *redis.Client, prefix string) (map[string]int64, error) {
	m := map[string]int64{}
	keys := client.Scan(ctx, 0, prefix+"*", 1000).Iterator()
	for keys.Next(ctx) {
		_, name, _ := strings.Cut(keys.Val(), "}")
		if name == "check" || name == "replicas" || name == "" {
			continue // the service tried whether it can count, and noted that it is there, and how
		}
		old, period, err := oldName(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", keys.Val(), err)
		}
		v, err := client.Get(ctx, keys.Val()).Int64()
		if err != nil {
			return nil, fmt.Errorf("GET %s: %w", keys.Val(), err)
		}
		now, err := client.Time(ctx).Result()
		if err != nil {
			return nil, fmt.Errorf("TIME: %w", err)
		}
		if v>>32 == now.Unix()/period%(1<<20) { // else it is of a window that has ended
			m[old] += v % (1 << 32)
		}
	}
	return m, keys.Err()
}

var errName = errors.New("not the name of a counter of a fixed window")

// oldName turns a counter's name, such as 4:demo4:user=3:ann/fixed_window60, into the old one without its
// window, demo_user_ann_, and the period in seconds.
func oldName(name string) (old string, period int64, err error) {
	for !strings.HasPrefix(name, "/") {
		name = strings.TrimLeft(name, "=~")
		length, rest, found := strings.Cut(name, ":")
		n, err := strconv.Atoi(length)
		if err != nil || !found || n > len(rest) {
			return "", 0, errName
		}
		old += rest[:n] + "_"
		name = rest[n:]
	}
	seconds, found := strings.CutPrefix(name, "/fixed_window")
	period, err = strconv.ParseInt(seconds, 10, 64)
	if err != nil || !found || period < 1 {
		return "", 0, errName
	}
	return old, period, nil
}
