package main

import (
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/fallback"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
	"github.com/envoy-rls/envoy-rls/pkg/redisstore"
)

// The types of settings: each reads itself from text, and its error says what is allowed.
type (
	port          uint16
	count         int
	positive      int // a count of 1 or more
	duration      time.Duration
	timeout       time.Duration // 0 is auto
	byteSize      int
	cacheSize     int // bytes; 0 is none
	ratio         float32
	compatMode    string
	storeKind     string
	socketType    string
	redisKind     redisstore.Kind
	logLevel      slog.Level
	algorithm     limiter.Algorithm
	failurePolicy limiter.FailurePolicy
	localShare    fallback.Share
)

const (
	storeMemory storeKind = "memory"
	storeRedis  storeKind = "redis"
)

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *port) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 10, 16)
	if err != nil {
		return errors.New("want a port, a number from 0 to 65535")
	}
	*p = port(n)
	return nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *count) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 10, 16)
	if err != nil {
		return errors.New("want a number from 0 to 65535")
	}
	*c = count(n)
	return nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *positive) UnmarshalText(text []byte) error {
	if (*count)(p).UnmarshalText(text) != nil || *p == 0 {
		return errors.New("want a number from 1 to 65535")
	}
	return nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil || v < 0 {
		return errors.New("want a duration of 0 or more with its unit, such as 500ms, 5s or 1h30m")
	}
	*d = duration(v)
	return nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (t *timeout) UnmarshalText(text []byte) error {
	if string(text) == "auto" {
		*t = 0
		return nil
	}
	v, err := time.ParseDuration(string(text))
	if err != nil || v <= 0 {
		return errors.New("want auto, or a duration above 0 with its unit, such as 10ms")
	}
	*t = timeout(v)
	return nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (b *byteSize) UnmarshalText(text []byte) error {
	number := strings.TrimRight(string(text), "KMGiB")
	unit, ok := map[string]uint64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}[string(text[len(number):])]
	n, err := strconv.ParseUint(number, 10, 20)
	if !ok || err != nil || n == 0 {
		return errors.New("want a size with its unit, such as 512KiB, 256MiB or 1GiB")
	}
	*b = byteSize(n * unit)
	return nil
}

// UnmarshalText implements encoding.TextUnmarshaler. The replaced service takes bytes, without a unit.
func (c *cacheSize) UnmarshalText(text []byte) error {
	if n, err := strconv.ParseUint(string(text), 10, 40); err == nil {
		*c = cacheSize(n)
		return nil
	}
	if (*byteSize)(c).UnmarshalText(text) != nil {
		return errors.New("want 0, bytes, or a size with its unit, such as 8MiB")
	}
	return nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *ratio) UnmarshalText(text []byte) error {
	v, err := strconv.ParseFloat(string(text), 32)
	if err != nil || !(v > 0 && v <= 1) {
		return errors.New("want a part, a number above 0 and up to 1")
	}
	*r = ratio(v)
	return nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *compatMode) UnmarshalText(text []byte) error { return oneOf(c, text, compatName) }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *storeKind) UnmarshalText(text []byte) error {
	if strings.EqualFold(string(text), "memcache") {
		return errors.New("memcached can't decide a request at one instant, so limits would be exceeded; want redis, with its " +
			"address in --redis (REDIS_URL), or memory, for a single replica")
	}
	return oneOf(s, text, storeMemory, storeRedis)
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *socketType) UnmarshalText(text []byte) error { return oneOf(s, text, "tcp", "unix", "") }

func oneOf[T ~string](target *T, text []byte, allowed ...T) error {
	for _, a := range allowed {
		if strings.EqualFold(string(a), string(text)) {
			*target = a
			return nil
		}
	}
	words := make(wantWord, 0, len(allowed))
	for _, a := range slices.DeleteFunc(allowed, func(a T) bool { return a == "" }) {
		words = append(words, string(a))
	}
	return words
}

// wantWord is the error of a value that is none of a few; completion offers them.
type wantWord []string

func (w wantWord) Error() string { return "want " + strings.Join(w, " or ") }

// UnmarshalText implements encoding.TextUnmarshaler. It knows the names of the replaced service, too.
func (l *logLevel) UnmarshalText(text []byte) error {
	levels := map[string]slog.Level{
		"trace": slog.LevelDebug, "debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn,
		"warning": slog.LevelWarn, "error": slog.LevelError, "fatal": slog.LevelError, "panic": slog.LevelError,
	}
	level, ok := levels[strings.ToLower(string(text))]
	if !ok {
		return errors.New("want debug, info, warn or error")
	}
	*l = logLevel(level)
	return nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (a *algorithm) UnmarshalText(text []byte) error {
	v, err := limiter.ParseAlgorithm(string(text))
	if err != nil {
		return wantWord(limiter.AlgorithmNames())
	}
	*a = algorithm(v)
	return nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *failurePolicy) UnmarshalText(text []byte) error {
	v, err := limiter.ParseFailurePolicy(string(text))
	if err != nil {
		return wantWord{"local", "allow", "deny", "error"}
	}
	*p = failurePolicy(v)
	return nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (l *localShare) UnmarshalText(text []byte) error {
	v, err := fallback.ParseShare(string(text))
	*l = localShare(v)
	return err
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (k *redisKind) UnmarshalText(text []byte) error {
	v, err := redisstore.ParseKind(string(text))
	*k = redisKind(v)
	return err
}
