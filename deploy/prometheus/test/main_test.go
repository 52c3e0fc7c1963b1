package monitoring

import (
	"os"
	"testing"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

func TestMain(m *testing.M) { os.Exit(proctest.Main(m)) }
