package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of CPU time in /proc, USER_HZ: 100 a second for every program on Linux, whatever the kernel's own.
const tick = 10 * time.Millisecond

// Where utime and stime (fields 14 and 15) stand among what follows the command's name in /proc/<pid>/stat.
const (
	userField   = 11
	systemField = 12
)

// Process is a process whose CPU time is counted.
type Process struct {
	Name string
	PID  int
}

// UnmarshalText reads name=pid.
func (p *Process) UnmarshalText(text []byte) error {
	name, number, found := strings.Cut(string(text), "=")
	pid, err := strconv.Atoi(number)
	if !found || name == "" || err != nil || pid <= 0 {
		return fmt.Errorf("process %q is not name=pid", text)
	}
	*p = Process{Name: name, PID: pid}
	return nil
}

// cpuTime gives what all threads of the process have used so far, in user and system mode.
func (p Process) cpuTime() (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID))
	if err != nil {
		return 0, fmt.Errorf("CPU time of %s: %w", p.Name, err)
	}
	_, used, err := parseStat(string(stat))
	return used, err
}

// parseStat reads the command's name and the CPU time used from a line of /proc/<pid>/stat. The name is in parentheses
// and may itself hold spaces and parentheses: it ends at the last one.
func parseStat(line string) (command string, used time.Duration, err error) {
	open, end := strings.IndexByte(line, '('), strings.LastIndexByte(line, ')')
	if open < 0 || end < open {
		return "", 0, fmt.Errorf("no command in stat line %q", line)
	}
	fields := strings.Fields(line[end+1:])
	if len(fields) <= systemField {
		return "", 0, fmt.Errorf("no CPU time in stat line %q", line)
	}
	var ticks int64
	for _, field := range fields[userField : systemField+1] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return "", 0, fmt.Errorf("CPU time in stat line %q: %w", line, err)
		}
		ticks += n
	}
	return line[open+1 : end], time.Duration(ticks) * tick, nil
}

// cpuTimes reads the clocks of all processes, in their order.
func cpuTimes(processes []Process) ([]time.Duration, error) {
	times := make([]time.Duration, len(processes))
	for i, process := range processes {
		used, err := process.cpuTime()
		if err != nil {
			return nil, err
		}
		times[i] = used
	}
	return times, nil
}
