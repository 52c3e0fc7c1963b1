package limiter

import "time"

// Row is a counter's state in numbers; what they mean is its algorithm's business. The zero Row is a counter
// that was never hit.
type Row struct {
	A, B, C int64

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
	// check reports what is wrong with a limit beyond what all algorithms ask.
	check func(Limit) error
	// roll brings the row to now, which may lie before the row's own time.
	roll func(counter)
	// room is how many hits of cost 1 fit.
	room func(counter) int64
	// spend charges n, or gives back -n with a floor of zero, and tells whether that changed the row. If at
	// is not 0, it does so only into at's window.
	spend func(c counter, n, at int64) bool
	// resetAfter is how long until the row is as good as new.
	resetAfter func(counter) time.Duration
	// retryAfter is how long until n hits fit, above 0; n does not fit now.
	retryAfter func(c counter, n int64) time.Duration
}

// kernels has a line for each algorithm.
var kernels = [...]kernel{
	FixedWindow: fixedWindow,
}

func micros(d time.Duration) int64 { return int64(d / time.Microsecond) }

func duration(us int64) time.Duration { return time.Duration(us) * time.Microsecond }
