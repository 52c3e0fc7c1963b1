// Package e2e tests the service through a real Envoy: what clients of Envoy see.
package e2e

import (
	"os"
	"testing"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

func TestMain(m *testing.M) { os.Exit(proctest.Main(m)) }

const inMemory = "--store=memory"

// onBothStores runs a test with the arguments that make envoy-rls count in memory, then in Redis.
func onBothStores(t *testing.T, test func(t *testing.T, store string)) {
	t.Run("in memory", func(t *testing.T) { test(t, inMemory) })
	t.Run("in Redis", func(t *testing.T) { test(t, "--redis="+proctest.StartRedis(t).URL()) })
}
