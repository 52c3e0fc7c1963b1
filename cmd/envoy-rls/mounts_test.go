package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// configMap is a volume of Kubernetes with one file: a link into ..data, which leads to the version in force.
type configMap struct {
	t        *testing.T
	dir      string
	versions int
}

func newConfigMap(t *testing.T, rules string) *configMap {
	t.Helper()
	m := &configMap{t: t, dir: filepath.Join(t.TempDir(), "a volume")}
	m.update(rules)
	m.must(os.Symlink("..data/shop.yaml", m.file()))
	return m
}

func (m *configMap) file() string { return filepath.Join(m.dir, "shop.yaml") }

func (m *configMap) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

// update does what the kubelet does: it writes another version, has ..data lead there, and deletes the one before.
func (m *configMap) update(rules string) {
	m.t.Helper()
	m.versions++
	version, data := filepath.Join(m.dir, fmt.Sprint("..", m.versions)), filepath.Join(m.dir, "..data")
	m.must(os.MkdirAll(version, 0o700))
	m.must(os.WriteFile(filepath.Join(version, "shop.yaml"), []byte(rules), 0o600))
	m.must(os.Symlink(filepath.Base(version), data+"_tmp"))
	m.must(os.Rename(data+"_tmp", data))
	m.must(os.RemoveAll(filepath.Join(m.dir, fmt.Sprint("..", m.versions-1))))
}

// mountedBySubPath is a program that is envoy-rls where the file has the same name, and is mounted by subPath.
func (m *configMap) mountedBySubPath() (program string) {
	m.t.Helper()
	dir, unshare := m.t.TempDir(), proctest.OwnMounts()
	if unshare == nil {
		m.t.Skip("nothing can be mounted here")
	}
	m.must(os.WriteFile(filepath.Join(dir, "shop.yaml"), nil, 0o600))
	const mount = `mount --bind "$1/shop.yaml" "$2/shop.yaml"; mount --rbind "$2" "$1"; shift 2; exec "$@"`
	program = filepath.Join(dir, "program")
	m.must(os.WriteFile(program, fmt.Appendf(nil, "#!/bin/sh\nexec %s sh -ec '%s' sh '%s' '%s' '%s' \"$@\"\n",
		strings.Join(unshare, " "), mount, m.dir, dir, proctest.Binary(m.t)), 0o700))
	return program
}

// TestAConfigMapThatIsMountedBySubPathIsToldOf has one replica with the ConfigMap as a directory, and one with its file alone.
func TestAConfigMapThatIsMountedBySubPathIsToldOf(t *testing.T) {
	redis, volume := proctest.StartRedis(t), newConfigMap(t, topRules)
	right := proctest.StartService(t, "--rules="+volume.dir, "--redis="+redis.URL())
	wrong := proctest.StartBinary(t, volume.mountedBySubPath(), "--rules="+volume.dir, "--redis="+redis.URL())
	const told = `msg="a rule file is mounted by itself, and stays as it is" file=`
	if line := fmt.Sprintf("%s%q", told, volume.file()); !strings.Contains(wrong.Output(), line) {
		t.Errorf("there is no %s", line)
	}
	if strings.Contains(right.Output(), told) {
		t.Error("what is mounted as a directory is told of as well")
	}
	fleet := "--fleet=" + right.Admin + "," + wrong.Admin
	if _, text := runTop("--once", fleet); strings.Contains(text, "the rules of replicas differ") {
		t.Errorf("before the update:\n%s", text)
	}
	volume.update(strings.Replace(topRules, "1000", "2000", 1))
	proctest.Eventually(t, "the log tells of the rule", func() bool { return strings.Contains(right.Output(), `msg="rule changed"`) })
	if _, text := runTop("--once", fleet); !strings.Contains(text, "the rules of replicas differ") {
		t.Errorf("after the update:\n%s", text)
	}
	if wrong.End(); strings.Contains(wrong.Output(), `msg="rule changed"`) {
		t.Error("the file that is mounted by itself has changed: this test shows nothing")
	}
}
