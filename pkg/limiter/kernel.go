package limiter

import (
	"slices"
	"time"
)

// Row is a counter's state in numbers; what they mean is its algorithm's business. The zero Row is a counter
// that was never hit.
type Row struct {
	A, B, C int64
	// Log is never changed in place: rows that are copies of each other share it.
	Log []int64

	pending int64 // what earlier hits of the batch being decided would take
}

// counter is what a kernel works on: a row, under a limit, at an instant (µs since the Unix epoch).
type counter struct {
	limit *Limit
	row   *Row
	now   int64
}

// kernel is an algorithm. Its functions are pure but for the row, which they change in place, and know
// nothing of policies. room, spend and the waits want a row that roll has brought to now.
type kernel struct {
	name string
	// bucket tells that limits have a burst.
	bucket bool
	// check reports what is wrong with a limit beyond what all algorithms ask.
	check func(Limit) error
	// roll brings the row to now, which may lie before the row's own time.
	roll func(counter)
	// room is how many hits of cost 1 fit.
	room func(counter) int64
	// spend charges n, or gives back -n with a floor of zero, and tells whether that changed the row. If at
	// is not 0, it does so only into at's window.
	spend func(c counter, n, at int64) bool
	// resetAfter is how long until a client has its whole limit again, or, for windows, until the present
	// one ends.
	resetAfter func(counter) time.Duration
	// retryAfter is how long until n hits fit, or until it is worth asking again if they never do.
	retryAfter func(c counter, n int64) time.Duration
	// expires is the instant from which the row is as good as none.
	expires func(counter) int64
}

// Room is how many hits of cost 1 r, rolled to now, would admit.
func Room(l *Limit, r *Row, now int64) int64 {
	c := counter{l, r, now}
	kernels[l.Algorithm].roll(c)
	return kernels[l.Algorithm].room(c)
}

// Seen is a row that had so much room at an instant, in µs since the Unix epoch, as far as room tells: what a store
// has not told of it, such as when a log's hits were, is as it is least generous later.
func Seen(l *Limit, room, at int64) Row {
	used := max(int64(l.Requests)-room, 0)
	switch k := &kernels[l.Algorithm]; {
	case k.bucket:
		return Row{A: at, B: max(capacity(l)-room*million, 0)}
	case l.Algorithm == SlidingLog:
		return Row{Log: slices.Repeat([]int64{at}, int(used))}
	default:
		return Row{A: at / micros(l.Period), B: used}
	}
}

// Expires is the instant, in µs since the Unix epoch, from which r, rolled to now, is as good as no row.
func Expires(l *Limit, r *Row, now int64) int64 {
	return kernels[l.Algorithm].expires(counter{l, r, now})
}

func micros(d time.Duration) int64 { return int64(d / time.Microsecond) }

// floorDiv rounds towards negative infinity, as Lua's twin does. b is above 0.
func floorDiv(a, b int64) int64 {
	if a < 0 {
		return -((-a + b - 1) / b)
	}
	return a / b
}

func ceilDiv(a, b int64) int64 { return -floorDiv(-a, b) }

func duration(us int64) time.Duration { return time.Duration(us) * time.Microsecond }
