package proctest

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Goroutines returns a function that waits until all goroutines have ended that have begun since then, but for those of
// servers of gRPC.
func Goroutines(t testing.TB) (ended func()) {
	t.Helper()
	before := goleak.IgnoreCurrent()
	return func() {
		t.Helper()
		for began := time.Now(); ; {
			err := goleak.Find(before, goleak.IgnoreAnyFunction("google.golang.org/grpc.(*Server).Serve"))
			if err == nil {
				return
			}
			if time.Since(began) > patience {
				t.Errorf("goroutines are left: %v", err)
				return
			}
		}
	}
}
