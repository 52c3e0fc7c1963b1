package accesslog

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

// clock reads instants. Logs have many of one in a row.
type clock struct {
	text string
	at   int64
}

// apache is the time of the common format.
const apache = "02/Jan/2006:15:04:05 -0700"

var (
	errInstant = errors.New("the time is none such as 10/Oct/2026:13:55:36 +0000, 2026-10-10T13:55:36.123Z, or a number since 1970 " +
		"in seconds, milliseconds, microseconds or nanoseconds")
	errYears = errors.New("the time is outside of the years 1970 to 2099")
)

// read is in µs since the Unix epoch.
func (c *clock) read(text []byte) (int64, error) {
	if string(text) == c.text {
		return c.at, nil
	}
	at, err := instant(string(text))
	switch {
	case err != nil:
		return 0, err
	case at < 0 || at >= int64(130*365.25*86400)*1_000_000:
		return 0, errYears
	}
	c.text, c.at = string(text), at
	return at, nil
}

func instant(text string) (int64, error) {
	for _, layout := range []string{time.RFC3339, apache} {
		if len(text) >= len("2006-01-02T15:04:05Z") && (text[2] == '/') == (layout == apache) {
			t, err := time.Parse(layout, text)
			if err != nil {
				return 0, errInstant
			}
			return t.UnixMicro(), nil
		}
	}
	whole, _, fraction := strings.Cut(text, ".")
	n, err := strconv.ParseInt(whole, 10, 64)
	if err != nil {
		return 0, errInstant
	}
	if fraction {
		return fractional(text)
	}
	return micros(n), nil
}

// fractional reads seconds, or milliseconds, with a fraction.
func fractional(text string) (int64, error) {
	f, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil || math.IsNaN(f) || math.Abs(f) > 1e14:
		return 0, errInstant
	case math.Abs(f) >= 1e11:
		return int64(math.Round(f * 1e3)), nil
	}
	return int64(math.Round(f * 1e6)), nil
}

// micros tells the unit of a time by its size: no log is of before 1973 in one and of after 5000 in the next.
func micros(n int64) int64 {
	switch size := max(n, -n); {
	case size < 1e11:
		return n * 1_000_000
	case size < 1e14:
		return n * 1_000
	case size < 1e17:
		return n
	}
	return n / 1_000
}
