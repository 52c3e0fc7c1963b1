// Package drills breaks what the service stands on, Redis above all, while a client calls it at a constant rate with
// 20 ms for each call, and holds the service to what that client sees. docs/failure.md lists the drills.
package drills

import (
	"os"
	"testing"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

func TestMain(m *testing.M) { os.Exit(proctest.Main(m)) }
