package main

import (
	"cmp"
	"context"
	"debug/buildinfo"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"text/tabwriter"
	"time"
)

// environment is what figures depend on besides the programs. It names no host and no path. What can't be found is "?".
type environment struct {
	Processor string
	Cores     int
	Kernel    string
	Go        string // that the service was built with
	GRPC      string // of the no-op
	Redis     string
	Day       string
}

// The lines and words that tell a processor and a Redis.
var (
	modelName    = regexp.MustCompile(`(?m)^model name\s*:\s*(.+)$`)
	redisVersion = regexp.MustCompile(`\bv=(\S+)`)
)

const unknown = "?"

// lookAround finds the environment of a comparison of a build.
func lookAround(ctx context.Context, binary string) environment {
	found := environment{
		Processor: unknown,
		Cores:     runtime.NumCPU(),
		Kernel:    unknown,
		Go:        unknown,
		GRPC:      unknown,
		Redis:     unknown,
		Day:       time.Now().UTC().Format(time.DateOnly),
	}
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		found.Processor = firstMatch(modelName, text)
	}
	if text, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		found.Kernel = strings.TrimSpace(string(text))
	}
	if info, err := buildinfo.ReadFile(binary); err == nil {
		found.Go = info.GoVersion
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		found.GRPC = versionOf(info, "google.golang.org/grpc")
	}
	if text, err := exec.CommandContext(ctx, redisName, "--version").Output(); err == nil {
		found.Redis = firstMatch(redisVersion, text)
	}
	return found
}

func firstMatch(of *regexp.Regexp, text []byte) string {
	if match := of.FindSubmatch(text); match != nil {
		return string(match[1])
	}
	return unknown
}

func versionOf(info *debug.BuildInfo, module string) string {
	for _, dependency := range info.Deps {
		if dependency.Path == module {
			return cmp.Or(dependency.Version, unknown)
		}
	}
	return unknown
}

// write prints it.
func (e environment) write(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "processor\t%s, %d cores\n", e.Processor, e.Cores)
	fmt.Fprintf(table, "kernel\t%s %s, %s\n", runtime.GOOS, e.Kernel, runtime.GOARCH)
	fmt.Fprintf(table, "built with\t%s; the no-op has grpc-go %s\n", e.Go, e.GRPC)
	fmt.Fprintf(table, "redis-server\t%s\n", e.Redis)
	fmt.Fprintf(table, "day\t%s\n", e.Day)
	return table.Flush()
}

// heading is what stands above figures: the environment of a build, and how it was measured.
func heading(ctx context.Context, out io.Writer, binary, how string) error {
	if err := lookAround(ctx, binary).write(out); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "\n%s\n\n", how)
	return err
}
