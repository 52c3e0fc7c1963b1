package descriptors_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
)

// seen is what Watch has last called with: the files' names, below the directory, and contents.
type seen struct {
	t    *testing.T
	dir  string
	mu   sync.Mutex
	last string
}

// watch watches paths below a directory until the test's end.
func watch(t *testing.T, dir string, paths ...string) *seen {
	t.Helper()
	for i, p := range paths {
		paths[i] = filepath.Join(dir, p)
	}
	return watchSource(t, dir, descriptors.Source{Paths: paths})
}

func watchSource(t *testing.T, dir string, source descriptors.Source) *seen {
	t.Helper()
	s := &seen{t: t, dir: dir}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		source.Watch(ctx, s.changed)
		close(ended)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return s
}

func (s *seen) changed(files []descriptors.File, err error) {
	var words []string
	for _, f := range files {
		text := string(f.Data)
		if f.Unread != nil {
			text = f.Unread.Error()
		}
		words = append(words, strings.TrimPrefix(f.Name, s.dir+"/")+"="+text)
	}
	if err != nil {
		words = append(words, "error")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = strings.Join(words, " ")
}

func (s *seen) expect(want string) {
	s.t.Helper()
	proctest.Eventually(s.t, fmt.Sprintf("the watcher sees %q", want), func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.last == want
	})
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestWatchSeesEditsRenamesAndNestedDirectories(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "rules/a.yaml", "1")
	s := watch(t, dir, "rules")
	s.expect("rules/a.yaml=1")
	write(t, dir, "rules/a.yaml", "2") // in place
	s.expect("rules/a.yaml=2")
	write(t, dir, "rules/.a.yaml.swp", "x")
	write(t, dir, "rules/notes.txt", "x")
	write(t, dir, "rules/new", "3") // as editors do: a new file takes the old one's name
	must(t, os.Rename(filepath.Join(dir, "rules/new"), filepath.Join(dir, "rules/a.yaml")))
	s.expect("rules/a.yaml=3")
	write(t, dir, "rules/deep/er/b.yml", "1")
	s.expect("rules/a.yaml=3 rules/deep/er/b.yml=1")
	write(t, dir, "rules/deep/er/b.yml", "2")
	s.expect("rules/a.yaml=3 rules/deep/er/b.yml=2")
	must(t, os.Rename(filepath.Join(dir, "rules/a.yaml"), filepath.Join(dir, "a.yaml")))
	s.expect("rules/deep/er/b.yml=2")
	must(t, os.RemoveAll(filepath.Join(dir, "rules")))
	s.expect("error")
	write(t, dir, "rules/c.yaml", "1")
	s.expect("rules/c.yaml=1")
}

// TestWatchSeesAConfigMapThatTheKubeletRewrites has a volume as the kubelet writes it: each name is a link into
// ..data, which is a link to a directory of a time, and is swapped by a rename.
func TestWatchSeesAConfigMapThatTheKubeletRewrites(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "rules/..2026_11_30_1/a.yaml", "1")
	must(t, os.Symlink("..2026_11_30_1", filepath.Join(dir, "rules/..data")))
	must(t, os.Symlink("..data/a.yaml", filepath.Join(dir, "rules/a.yaml")))
	s := watch(t, dir, "rules")
	s.expect("rules/a.yaml=1")
	for i := 2; i < 5; i++ {
		version := fmt.Sprint("..2026_11_30_", i)
		write(t, dir, "rules/"+version+"/a.yaml", fmt.Sprint(i))
		must(t, os.Symlink(version, filepath.Join(dir, "rules/..data_tmp")))
		must(t, os.Rename(filepath.Join(dir, "rules/..data_tmp"), filepath.Join(dir, "rules/..data")))
		must(t, os.RemoveAll(filepath.Join(dir, "rules", fmt.Sprint("..2026_11_30_", i-1))))
		s.expect(fmt.Sprint("rules/a.yaml=", i))
	}
}

// TestWatchReadsTheNamesThatItIsToldTo has a ConfigMap volume, files as an editor leaves them, and one without an ending.
func TestAFileWithoutEndIsNotRead(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "a.yaml")
	if err := os.WriteFile(name, []byte("domain: d"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(name, 64<<20+1); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, name, "/dev/zero"} {
		if _, err := descriptors.ReadFiles([]string{path}); err == nil || !strings.Contains(err.Error(), "it is larger than 64 MiB") {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestAFileThatCanNotBeReadKeepsNoOtherFromBeing(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Symlink("circle.yaml", filepath.Join(dir, "circle.yaml")))
	s := watch(t, dir, ".")
	s.expect("circle.yaml=too many levels of symbolic links")
	write(t, dir, "good.yaml", "1")
	s.expect("circle.yaml=too many levels of symbolic links good.yaml=1")
	if _, err := descriptors.ReadFiles([]string{dir}); err == nil || !strings.HasSuffix(err.Error(), "/circle.yaml: too many levels of symbolic links") {
		t.Errorf("all or none are %v", err)
	}
}

func TestWatchReadsTheNamesThatItIsToldTo(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "rules/..2026_11_30_1/a.yaml", "1")
	must(t, os.Symlink("..2026_11_30_1", filepath.Join(dir, "rules/..data")))
	must(t, os.Symlink("..data/a.yaml", filepath.Join(dir, "rules/a.yaml")))
	write(t, dir, "rules/.hidden/b.yaml", "2")
	write(t, dir, "rules/.c", "domain: c")
	write(t, dir, "rules/d", "# d\ndomain: d")
	write(t, dir, "rules/notes.txt", "# of a domain")
	paths := []string{filepath.Join(dir, "rules")}
	watchSource(t, dir, descriptors.Source{Paths: paths}).expect("rules/a.yaml=1")
	watchSource(t, dir, descriptors.Source{Paths: paths, AnyName: true}).expect("rules/a.yaml=1 rules/d=# d\ndomain: d")
	all := watchSource(t, dir, descriptors.Source{Paths: paths, AnyName: true, DotNames: true})
	all.expect("rules/.c=domain: c rules/.hidden/b.yaml=2 rules/a.yaml=1 rules/d=# d\ndomain: d")
	write(t, dir, "rules/.hidden/b.yaml", "5")
	all.expect("rules/.c=domain: c rules/.hidden/b.yaml=5 rules/a.yaml=1 rules/d=# d\ndomain: d")
}

func TestWatchSeesALinkOnTheWayThatIsSwapped(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "v1/app/config/a.yaml", "1")
	write(t, dir, "v2/app/config/a.yaml", "2")
	must(t, os.Symlink("v1", filepath.Join(dir, "current")))
	s := watch(t, dir, "current/app/config")
	s.expect("current/app/config/a.yaml=1")
	must(t, os.Symlink("v2", filepath.Join(dir, "next")))
	must(t, os.Rename(filepath.Join(dir, "next"), filepath.Join(dir, "current")))
	s.expect("current/app/config/a.yaml=2")
	write(t, dir, "v2/app/config/a.yaml", "3")
	s.expect("current/app/config/a.yaml=3")
}

func file(name, domain string, requests int) descriptors.File {
	return descriptors.File{Name: name, Data: fmt.Appendf(nil,
		"domain: %s\ndescriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: %d}}]", domain, requests)}
}

func TestABadFileStaysAsItLastWasGood(t *testing.T) {
	l := descriptors.NewLoader(descriptors.Options{})
	bad := descriptors.File{Name: "a.yaml", Data: []byte("domain: [")}
	steps := []struct {
		files   []descriptors.File
		changes string
		missing bool
	}{
		{[]descriptors.File{bad, file("b.yaml", "b", 1)}, "[+ b.user: 1 per day HOW]", true},
		{[]descriptors.File{file("a.yaml", "a", 1), file("b.yaml", "b", 1)}, "[+ a.user: 1 per day HOW]", false},
		{[]descriptors.File{bad, file("b.yaml", "b", 2)}, "[~ b.user: 1 per day -> 2 per day]", false},
		{[]descriptors.File{bad}, "[- b.user: 2 per day HOW]", false},
		{[]descriptors.File{{Name: "a.yaml", Unread: os.ErrPermission}}, "[]", false},
		{[]descriptors.File{file("a.yaml", "a", 3)}, "[~ a.user: 1 per day -> 3 per day]", false},
		// A domain that is in two files stays with the one that had it first, whatever their names.
		{[]descriptors.File{file("0.yaml", "a", 9), file("a.yaml", "a", 3)}, "[]", true},
		{[]descriptors.File{file("0.yaml", "a", 9)}, "[~ a.user: 3 per day -> 9 per day]", false},
	}
	words := strings.NewReplacer("for each distinct user, fixed window; refused requests cost nothing", "HOW")
	var before *descriptors.Ruleset
	for i, step := range steps {
		rules, _, missing := l.Load(step.files)
		if got := words.Replace(fmt.Sprint(rules.Changes(before))); got != step.changes || missing != step.missing {
			t.Errorf("step %d: %s, missing %t; want %s, %t", i, got, missing, step.changes, step.missing)
		}
		before = rules
	}
}

func TestASetIsLoadedAsAWholeBesideFiles(t *testing.T) {
	l := descriptors.NewLoader(descriptors.Options{})
	bad := descriptors.File{Name: "resource a", Data: []byte("domain: a\ndescriptors: [{key: user, rate_limit: {unit: day}}]"), Generated: true}
	defaults := func(algorithm string) descriptors.File {
		return descriptors.File{Name: "defaults.yaml", Data: []byte("domains: ['*']\ndefaults: {algorithm: " + algorithm + "}")}
	}
	var before *descriptors.Ruleset
	expect := func(step string, rules *descriptors.Ruleset, problems []descriptors.Problem, want string) {
		t.Helper()
		got := "refused"
		if rules != nil {
			got = fmt.Sprint(rules.Changes(before))
			before = rules
		}
		if got += " " + fmt.Sprint(problems); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", step, got, want)
		}
	}
	load := func(step, want string, files ...descriptors.File) {
		t.Helper()
		rules, problems, missing := l.Load(files)
		if missing {
			t.Errorf("%s: something is missing", step)
		}
		expect(step, rules, problems, want)
	}
	loadSet := func(step, want string, set ...descriptors.File) {
		t.Helper()
		rules, problems := l.LoadSet(set)
		expect(step, rules, problems, want)
	}
	load("a file", "[+ f.user: 1 per day for each distinct user, fixed window; refused requests cost nothing] []", file("f.yaml", "f", 1))
	loadSet("a set", "[+ a.user: 200 per day for each distinct user, fixed window; refused requests cost nothing] []", file("resource a", "a", 200))
	loadSet("a bad resource", "refused [resource a: a.user.rate_limit: requests_per_unit is missing", bad, file("resource b", "b", 1))
	loadSet("a domain of a file", `refused [resource f:1:9: domain: domain "f" is already at f.yaml:1:9`, file("resource f", "f", 1))
	load("defaults for both", "[~ a.user: 200 per day for each distinct user, fixed window; refused requests cost nothing -> "+
		"200 per day for each distinct user, sliding window", file("f.yaml", "f", 1), defaults("sliding_window"))
	load("defaults that the set can't have", "[] [resource a:2:", file("f.yaml", "f", 2), defaults("sliding_log"))
	load("good ones again", "[~ f.user: 1 per day -> 3 per day] []", file("f.yaml", "f", 3), defaults("sliding_window"))
	loadSet("no set", "[- a.user: 200 per day")
}
