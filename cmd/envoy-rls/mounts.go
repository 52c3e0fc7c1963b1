package main

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
)

// mountTable tells what is mounted where, on Linux.
const mountTable = "/proc/self/mountinfo"

// tellMounts warns of rule files that are mounted by themselves. They are the file that was there at the time: where another
// one takes its place, as Kubernetes does with those of a ConfigMap, it is never seen here.
func (srv *server) tellMounts(files []descriptors.File) {
	points := mountPoints()
	for _, f := range files {
		if path, err := filepath.EvalSymlinks(f.Name); err == nil {
			if path, err = filepath.Abs(path); err == nil && points[path] {
				srv.log.Warn("a rule file is mounted by itself, and stays as it is", "file", f.Name,
					"mend", "mount its directory; in Kubernetes without subPath, which is never updated")
			}
		}
	}
}

// mountPoints are where something is mounted, as far as is known.
func mountPoints() map[string]bool {
	text, err := os.ReadFile(mountTable)
	if err != nil {
		return nil
	}
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	points := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 4 {
			points[unescape.Replace(fields[4])] = true
		}
	}
	return points
}
