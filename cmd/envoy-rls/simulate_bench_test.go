package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// BenchmarkSimulate takes a request for an operation, of 50,000 clients who come at random in the course of a day. With a
// million of them it is what docs/simulate.md tells: make bench-simulate.
func BenchmarkSimulate(b *testing.B) {
	dir := b.TempDir()
	var sets []string
	for i, flag := range []string{"--rules", "--against"} {
		file := filepath.Join(dir, fmt.Sprint(i, ".yaml"))
		rule := fmt.Sprintf("domain: api\ndescriptors: [{key: remote_address, rate_limit: {unit: minute, requests_per_unit: %d}}]\n", 3-i)
		if err := os.WriteFile(file, []byte(rule), 0o600); err != nil {
			b.Fatal(err)
		}
		sets = append(sets, flag+"="+file)
	}
	for _, traffic := range []struct {
		name, value string
		line        func(at time.Time, client int) string
	}{
		{"made-up", "{value}", nil},
		{"common", "{remote_address}", commonLine},
		{"json", "{user}", jsonLine},
	} {
		for n := range sets {
			b.Run(fmt.Sprintf("%s/sets=%d", traffic.name, n+1), func(b *testing.B) {
				args := append([]string{"envoy-rls", "simulate", "-d", "remote_address=" + traffic.value}, sets[:n+1]...)
				if traffic.line == nil {
					args = append(args, "--generate=steady", fmt.Sprintf("--rate=%f", float64(b.N)/day.Seconds()), "--for=24h", "--values=50000")
				} else {
					args = append(args, writeLog(b, traffic.line))
				}
				simulateOften(b, args)
			})
		}
	}
}

const day = 24 * time.Hour

// simulateOften runs the program on traffic of b.N requests, and tells the CPU time of one, and how many there are in a second of it.
func simulateOften(b *testing.B, args []string) {
	b.Helper()
	var complaints bytes.Buffer
	began := cpuTime(b)
	if code := run(args, streams{io.Discard, &complaints}); code != exitOK && b.N > 1 {
		b.Fatalf("it ends with %d: %s", code, complaints.String())
	}
	used := cpuTime(b) - began
	b.ReportMetric(0, "ns/op") // which tells of whom else the machine works for
	b.ReportMetric(float64(used.Nanoseconds())/float64(b.N), "cpu-ns/op")
	b.ReportMetric(float64(b.N)/used.Seconds(), "requests/cpu-s")
}

// cpuTime is what this process has used.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// writeLog writes b.N lines, evenly in a day.
func writeLog(b *testing.B, line func(at time.Time, client int) string) (file string) {
	b.Helper()
	file = filepath.Join(b.TempDir(), "access.log")
	f, err := os.Create(file)
	if err != nil {
		b.Fatal(err)
	}
	w := bufio.NewWriter(f)
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for n := range b.N {
		_, _ = w.WriteString(line(begin.Add(day/time.Duration(b.N)*time.Duration(n)), n*7919%50_000)) // Flush tells
	}
	if err := w.Flush(); err != nil {
		b.Fatal(err)
	}
	_ = f.Close() // all is written
	return file
}

func commonLine(at time.Time, client int) string {
	return fmt.Sprintf("10.0.%d.%d - - [%s] \"GET /items/%d HTTP/1.1\" 200 512\n", client/256, client%256, at.Format("02/Jan/2006:15:04:05 -0700"), client)
}

// jsonLine has 300 bytes.
func jsonLine(at time.Time, client int) string {
	line := fmt.Sprintf(`{"start_time":%q,"method":"GET","path":"/items/%d","response_code":200,"duration":12,"user":"10.0.%d.%d","user_agent":"`,
		at.Format(time.RFC3339Nano), client, client/256, client%256)
	return line + strings.Repeat("a", max(297-len(line), 0)) + "\"}\n"
}
