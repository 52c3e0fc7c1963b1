package compat

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// stats are the replaced service's counters, by their names.
type stats map[string]float64

// readStats reads the lines of admin's /stats.
func readStats(url string) (stats, error) {
	client := http.Client{Timeout: patience}
	r, err := client.Get(url)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Body.Close() }() // it has been read
	list := stats{}
	lines := bufio.NewScanner(r.Body)
	for lines.Scan() {
		name, value, found := strings.Cut(lines.Text(), ": ")
		n, err := strconv.ParseFloat(value, 64)
		if err != nil || !found {
			return nil, fmt.Errorf("%q is not a name and a number", lines.Text())
		}
		list[name] = n
	}
	return list, lines.Err()
}

// of is the counter of a name in a case. What is not there is 0, as everything is that was never emitted.
func (list stats) of(name string) float64 {
	if rest, ok := strings.CutPrefix(name, "~"); ok {
		name = "ratelimit.service.rate_limit." + rest
	}
	if strings.HasSuffix(name, ".domain_not_found") { // names of domains that a client chooses are no names here
		name = "ratelimit.service.rate_limit._other.domain_not_found"
	}
	return list[name]
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
