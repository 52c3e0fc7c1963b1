package descriptors

import (
	"fmt"
	"strings"
	"time"
)

// Unit is a limit's unit of time. Its numbers are those of
// envoy.service.ratelimit.v3.RateLimitResponse.RateLimit.Unit; the zero Unit is no unit.
type Unit uint8

// The units, all of fixed length and counted from the Unix epoch: a month is 30 days, a year 365, and a week
// starts on a Thursday, as in the service that this one replaces.
const (
	Second Unit = iota + 1
	Minute
	Hour
	Day
	Month
	Year
	Week
)

const day = 24 * time.Hour

var units = [...]struct {
	name   string
	length time.Duration
}{
	Second: {"second", time.Second},
	Minute: {"minute", time.Minute},
	Hour:   {"hour", time.Hour},
	Day:    {"day", day},
	Month:  {"month", 30 * day},
	Year:   {"year", 365 * day},
	Week:   {"week", 7 * day},
}

// ParseUnit reads a unit's name in any case.
func ParseUnit(s string) (Unit, bool) {
	for u := Second; int(u) < len(units); u++ {
		if strings.EqualFold(s, units[u].name) {
			return u, true
		}
	}
	return 0, false
}

// Valid tells whether u is one of the units above.
func (u Unit) Valid() bool { return u >= Second && int(u) < len(units) }

// String is the unit's name, such as minute.
func (u Unit) String() string {
	if !u.Valid() {
		return fmt.Sprintf("unit(%d)", uint8(u))
	}
	return units[u].name
}

// Period is the length of multiplier units, where a multiplier of 0 counts as 1. ok is false for an unknown
// unit and for a length that overflows; limiter.Limit.Validate knows the longest that is allowed.
func (u Unit) Period(multiplier uint32) (period time.Duration, ok bool) {
	if !u.Valid() {
		return 0, false
	}
	n := time.Duration(max(multiplier, 1))
	if n > 1<<62/units[u].length {
		return 0, false
	}
	return n * units[u].length, true
}

// Words says how often: "minute", "15 minutes".
func (u Unit) Words(multiplier uint32) string {
	if multiplier <= 1 {
		return u.String()
	}
	return fmt.Sprintf("%d %ss", multiplier, u)
}
