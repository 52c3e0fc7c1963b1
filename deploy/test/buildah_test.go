package deploytest

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// buildah builds and mounts images in a directory of the test's own.
type buildah struct {
	t       *testing.T
	storage []string
}

// hasBuildah tells whether images can be built here: only root can without more being set up.
func hasBuildah() bool {
	_, err := exec.LookPath("buildah")
	return err == nil && os.Getuid() == 0
}

func newBuildah(t *testing.T) *buildah {
	t.Helper()
	directory := t.TempDir()
	b := &buildah{t, []string{
		"--root", filepath.Join(directory, "root"), "--runroot", filepath.Join(directory, "run"), "--storage-driver", "vfs",
	}}
	t.Cleanup(func() { b.run("umount", "--all") })
	return b
}

// run is a buildah command's standard output.
func (b *buildah) run(args ...string) string {
	b.t.Helper()
	command := exec.Command("buildah", append(b.storage, args...)...)
	var failures strings.Builder
	command.Stderr = &failures
	out, err := command.Output()
	if err != nil {
		b.t.Fatalf("%s: %v\n%s%s", command, err, out, &failures)
	}
	return strings.TrimSpace(string(out))
}

// golang makes the image that the Dockerfile begins with, of this machine's Go: there may be no registry to ask. It is
// empty but for what the last stage copies; the rest is mounted when it is used.
func (b *buildah) golang() {
	b.t.Helper()
	container := b.run("from", "scratch")
	root := b.run("mount", container)
	for _, name := range []string{"bin", "lib", "lib64"} {
		if target, err := os.Readlink("/" + name); err != nil {
			b.t.Fatal(err)
		} else if err := os.Symlink(target, filepath.Join(root, name)); err != nil {
			b.t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(root, "tmp"), 0o755); err != nil {
		b.t.Fatal(err)
	}
	const certificates = "etc/ssl/certs/ca-certificates.crt"
	pem, err := os.ReadFile("/" + certificates)
	if err != nil {
		b.t.Fatal(err)
	}
	writeFile(b.t, filepath.Join(root, certificates), string(pem))
	b.run("config", "--env", "PATH="+goEnv(b.t, "GOROOT")+"/bin:/usr/bin:/bin", "--env", "GOFLAGS=-buildvcs=auto",
		"--env", "GOCACHE="+goEnv(b.t, "GOCACHE"), "--env", "GOMODCACHE="+goEnv(b.t, "GOMODCACHE"), container)
	b.run("commit", "--quiet", "--rm", container, from(b.t))
}

// image builds the Dockerfile in a directory and returns the root directory of a container of it.
func (b *buildah) image(directory string) string {
	b.t.Helper()
	b.golang()
	args := []string{"build", "--quiet", "--pull-never", "--isolation", "chroot", "--platform", "linux/" + runtime.GOARCH,
		"--tag", "envoy-rls:test", "--volume", "/usr:/usr:ro"}
	for _, variable := range []string{"GOROOT", "GOCACHE", "GOMODCACHE"} {
		path := goEnv(b.t, variable)
		args = append(args, "--volume", path+":"+path)
	}
	b.run(append(args, directory)...)
	return b.run("mount", b.run("from", "--pull-never", "localhost/envoy-rls:test"))
}

// from is the image that the Dockerfile begins with, by its full name.
func from(t *testing.T) string {
	t.Helper()
	for _, word := range strings.Fields(instructions(t)[0]) {
		if strings.HasPrefix(word, "golang:") {
			return "docker.io/library/" + word
		}
	}
	t.Fatalf("the Dockerfile begins with %s", instructions(t)[0])
	return ""
}

func goEnv(t *testing.T, variable string) string {
	t.Helper()
	out, err := exec.Command("go", "env", variable).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}
