package main

import (
	"errors"
	"strconv"
	"strings"

	"github.com/envoy-rls/envoy-rls/internal/accesslog"
	"github.com/envoy-rls/envoy-rls/internal/simulate"
)

// The types of simulate's flags.
type (
	logFormat string
	shape     string
	rate      float64
	// percentage is of requests; its zero value is none.
	percentage struct {
		given bool
		value float64
	}
)

// simulateValues are a value of each.
func simulateValues() []any { return []any{logFormat(""), shape(""), rate(0), percentage{}} }

// UnmarshalText implements encoding.TextUnmarshaler.
func (f *logFormat) UnmarshalText(text []byte) error {
	if strings.EqualFold(string(text), "combined") {
		text = []byte(accesslog.Common)
	}
	return oneOf(f, text, logFormat(accesslog.Common), logFormat(accesslog.Envoy), logFormat(accesslog.JSON))
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *shape) UnmarshalText(text []byte) error {
	return oneOf(s, text, shape(simulate.Steady), shape(simulate.BoundaryBurst), shape(simulate.Abuser), shape(simulate.Diurnal))
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *rate) UnmarshalText(text []byte) error {
	v, err := strconv.ParseFloat(string(text), 64)
	if err != nil || !(v >= 1e-6 && v <= 1e6) {
		return errors.New("want requests a second, a number from 0.000001 to 1000000")
	}
	*r = rate(v)
	return nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *percentage) UnmarshalText(text []byte) error {
	number, ok := strings.CutSuffix(string(text), "%")
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if !ok || err != nil || !(v >= 0 && v <= 100) {
		return errors.New("want a percentage, such as 0%, 0.1% or 5%")
	}
	*p = percentage{true, v}
	return nil
}

// exceeded tells whether a part is more of all than p.
func (p percentage) exceeded(part, all int64) bool {
	return p.given && 100*float64(part) > p.value*float64(all)
}
