package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// heapCounters is how many counters the memory of one is measured with.
const heapCounters = 1_000_000

// measureHeap finds what a counter takes in each build's memory store, once: it does not depend on the machine's mood.
func (c *Compare) measureHeap(ctx context.Context, rig *rig, into *comparison) error {
	if !c.Heap || !slices.Contains(c.Stores, memoryName) {
		return nil
	}
	workload, err := newWorkload(fmt.Sprintf("counters=%d", heapCounters), benchDomain)
	if err != nil {
		return err
	}
	for _, build := range c.builds() {
		bytes, err := heapOfACounter(ctx, envoyRLS{rig, build.Path}, workload)
		if err != nil {
			return fmt.Errorf("memory of %d counters: %w", heapCounters, err)
		}
		into.heap[build.serverName(memoryName)] = bytes
	}
	return nil
}

// heapOfACounter is by how much the heap grows, garbage collected, as counters come into being, divided by their number.
func heapOfACounter(ctx context.Context, service envoyRLS, workload *Workload) (_ float64, err error) {
	running, err := service.memory(ctx, workload)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, running.stop()) }()
	before, err := heapAlloc(ctx, running.admin)
	if err != nil {
		return 0, err
	}
	if err := workload.fillAt(ctx, running.address); err != nil {
		return 0, err
	}
	after, err := heapAlloc(ctx, running.admin)
	if err != nil {
		return 0, err
	}
	return (after - before) / float64(workload.Scenario.Counters), nil
}

// heapAlloc collects the garbage of the server whose profiles are at the address, and gives the bytes that remain.
func heapAlloc(ctx context.Context, admin string) (float64, error) {
	const field = "# HeapAlloc = "
	response, err := getProfile(ctx, admin, "heap?gc=1&debug=1")
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if value, found := strings.CutPrefix(lines.Text(), field); found {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, fmt.Errorf("the heap profile of %s has no %q: %s", admin, field, response.Status)
}

// getProfile asks the server whose profiles are at the address for one of them.
func getProfile(ctx context.Context, admin, which string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+admin+"/debug/pprof/"+which, nil)
	if err != nil {
		return nil, err
	}
	return http.DefaultClient.Do(request)
}
