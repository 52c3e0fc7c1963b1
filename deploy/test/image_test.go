package deploytest

import (
	"bufio"
	"context"
	"debug/elf"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	repository = "../.."
	nobody     = 65534
)

// TestTheImage builds it by buildah where that can be had, and otherwise does what a builder would: it takes the build context
// and the Dockerfile's own lines, and starts the result in a root directory that holds nothing else.
func TestTheImage(t *testing.T) {
	root := buildImage(t)
	t.Run("holds a static binary", func(t *testing.T) {
		isStatic(t, filepath.Join(root, "bin/envoy-rls"))
	})
	for _, name := range []string{"/bin/envoy-rls", "/bin/ratelimit"} {
		t.Run("runs "+name+" as nobody", func(t *testing.T) {
			if out, err := asNobody(t, root, name, "--help").CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	t.Run("says which commit it was built from", func(t *testing.T) {
		saysItsCommit(t, root)
	})
	t.Run("serves its own rules, without the examples", func(t *testing.T) {
		rules, err := filepath.Glob(filepath.Join(root, "etc/envoy-rls/rules/*"))
		if err != nil || len(rules) != 1 || filepath.Base(rules[0]) != "demo.yaml" {
			t.Errorf("the rules are %q, %v", rules, err)
		}
		serves(t, root, "serve", "--rules=/etc/envoy-rls/rules")
	})
	for name, all := range map[string]objects{"the manifests": build(t), "the chart": chart(t, "{}")} {
		t.Run("serves the rules of "+name+" with its arguments", func(t *testing.T) {
			rules := filepath.Join(root, "etc/envoy-rls/rules")
			if err := os.RemoveAll(rules); err != nil {
				t.Fatal(err)
			}
			for name, text := range find[*corev1.ConfigMap](t, all, "ConfigMap envoy-rls-rules").Data {
				writeFile(t, filepath.Join(rules, name), text)
			}
			args := deployment(t, all).Spec.Template.Spec.Containers[0].Args
			serves(t, root, slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return strings.HasPrefix(arg, "--redis=") })...)
		})
	}
}

func buildImage(t *testing.T) string {
	t.Helper()
	files := buildContext(t)
	if hasBuildah() {
		return newBuildah(t).image(files)
	}
	return imageRoot(t, files)
}

func saysItsCommit(t *testing.T, root string) {
	t.Helper()
	commit, err := exec.Command("git", "-C", repository, "rev-parse", "HEAD").Output()
	if err != nil {
		t.Fatal(err)
	}
	out, err := asNobody(t, root, "/bin/envoy-rls", "version").CombinedOutput()
	want := "\ncommit " + string(commit) + "date 20"
	if err != nil || !strings.Contains(string(out), want) || !strings.Contains(string(out), "\ngo1.") {
		t.Errorf("%v, without %q:\n%s", err, want, out)
	}
	changes, err := exec.Command("git", "-C", repository, "status", "--porcelain").Output()
	if err != nil {
		t.Fatal(err)
	}
	if clean := len(changes) == 0; clean == strings.Contains(string(out), "+dirty") {
		t.Errorf("changed is %q, and the version is\n%s", changes, out)
	}
}

func TestTheImageRunsAsNobodyFromScratch(t *testing.T) {
	image := instructions(t)
	image = image[slices.Index(image, "FROM scratch")+1:]
	for _, want := range []string{
		"COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/",
		"COPY --from=build /out/bin/ /bin/",
		"USER 65534:65534",
		"EXPOSE 8081 8080 6070",
		`ENTRYPOINT ["/bin/envoy-rls"]`,
		`CMD ["serve", "--rules=/etc/envoy-rls/rules"]`,
	} {
		if !slices.Contains(image, want) {
			t.Errorf("the last stage does not say %q", want)
		}
	}
}

// buildContext is a clone of the repository, with what .dockerignore leaves of the files as they are now.
func buildContext(t *testing.T) string {
	t.Helper()
	files := t.TempDir()
	// This may be a work tree, whose .git is elsewhere.
	if out, err := exec.Command("git", "clone", "--quiet", "--no-checkout", repository, files).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text, err := os.ReadFile(filepath.Join(repository, ".dockerignore"))
	if err != nil {
		t.Fatal(err)
	}
	ignored := append(strings.Split(string(text), "\n"), ".git")
	if out, err := exec.Command("git", "-C", files, "reset", "--quiet").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	entries, err := os.ReadDir(repository)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		name := entry.Name()
		if slices.Contains(ignored, name) {
			continue
		}
		if err := copyTree(filepath.Join(repository, name), filepath.Join(files, name)); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// copyTree copies a file or a directory, with permissions, which git looks at.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, relative)
		if entry.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, text, info.Mode().Perm())
	})
}

// imageRoot carries out the Dockerfile: its build line, and its COPY lines that need no other stage.
func imageRoot(t *testing.T, files string) string {
	t.Helper()
	root := t.TempDir()
	var built bool
	for _, line := range instructions(t) {
		switch words := strings.Fields(line); {
		case words[0] == "RUN" && strings.Contains(line, "go build"):
			built = true
			command := exec.Command("sh", "-ec", strings.ReplaceAll(strings.TrimPrefix(line, "RUN "), "/out/", root+"/"))
			command.Dir = files
			command.Env = append(os.Environ(), "GOFLAGS=-buildvcs=auto")
			if out, err := command.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", command, err, out)
			}
		case words[0] == "COPY" && strings.HasPrefix(words[1], "config/"):
			text, err := os.ReadFile(filepath.Join(files, words[1]))
			if err != nil {
				t.Fatal(err)
			}
			writeFile(t, filepath.Join(root, words[2], filepath.Base(words[1])), string(text))
		}
	}
	if !built {
		t.Fatal("the Dockerfile has no go build line")
	}
	return root
}

// instructions returns the Dockerfile's lines without comments, continued ones joined.
func instructions(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(strings.ReplaceAll(string(text), "\\\n", "")) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return lines
}

func isStatic(t *testing.T, binary string) {
	t.Helper()
	file, err := elf.Open(binary)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, program := range file.Progs {
		if program.Type == elf.PT_INTERP {
			t.Error("the binary asks for a dynamic loader, which scratch does not have")
		}
	}
}

// serves starts the image's program, on free ports and without Redis, waits until it is ready and stops it.
func serves(t *testing.T, root string, args ...string) {
	t.Helper()
	if os.Getuid() != 0 { // the root directory stays as it is
		for i, arg := range args {
			args[i] = strings.Replace(arg, "--rules=/", "--rules="+root+"/", 1)
		}
	}
	args = append(args, "--store=memory", "--port=0", "--grpc-port=0", "--admin-port=0")
	command := asNobody(t, root, "/bin/envoy-rls", args...)
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	command.Stderr = command.Stdout
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	for lines := bufio.NewScanner(output); lines.Scan(); {
		said.WriteString(lines.Text() + "\n")
		switch line := lines.Text(); {
		case strings.Contains(line, "msg=ready"):
			err = command.Process.Signal(os.Interrupt)
		case strings.Contains(line, "level=ERROR"):
			err = command.Process.Kill()
		}
		if err != nil {
			t.Error(err)
		}
	}
	if err := command.Wait(); err != nil {
		t.Errorf("%s: %v\n%s", command, err, &said)
	}
}

// asNobody is the program as the image starts it, on a root file system that nobody can write to, where root may set that up.
func asNobody(t *testing.T, root, name string, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	if os.Getuid() != 0 || exec.CommandContext(ctx, "unshare", "--mount", "true").Run() != nil {
		return exec.CommandContext(ctx, filepath.Join(root, name), args...)
	}
	if err := os.Chmod(filepath.Dir(root), 0o755); err != nil { // made for this user alone
		t.Fatal(err)
	}
	const readOnly = `mount --bind "$0" "$0"; mount -o remount,bind,ro "$0"; exec setpriv --no-new-privs chroot --userspec=65534:65534 "$0" "$@"`
	command := exec.CommandContext(ctx, "unshare", append([]string{"--mount", "sh", "-ec", readOnly, root, name}, args...)...)
	command.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	return command
}

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
