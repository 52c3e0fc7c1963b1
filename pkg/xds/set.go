package xds

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"fmt"
	"io"
	"slices"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rlsconf "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/protobuf/proto"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
)

const typeURL = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"

// Set is all rules of a control plane, as of one version.
type Set struct {
	// Version is the control plane's name for it.
	Version string
	// Files are the rules: a file for each resource, in the order of their names.
	Files []descriptors.File
	// Saved is when the snapshot was made, to the second, that the set was restored from.
	Saved time.Time

	response *discovery.DiscoveryResponse
}

// read reads a response. The problems are those for which it has to be refused as a whole.
func read(r *discovery.DiscoveryResponse) (*Set, []descriptors.Problem) {
	var problems []descriptors.Problem
	s := &Set{Version: r.GetVersionInfo(), response: r}
	for i, resource := range r.GetResources() {
		var config rlsconf.RateLimitConfig
		place := fmt.Sprintf("resource %d of %d", i+1, len(r.GetResources()))
		if t := resource.GetTypeUrl(); t != typeURL {
			problems = append(problems, descriptors.Problem{File: place, Text: fmt.Sprintf("it is of type %q, and not %s", t, typeURL)})
			continue
		}
		if err := proto.Unmarshal(resource.GetValue(), &config); err != nil {
			problems = append(problems, descriptors.Problem{File: place, Text: fmt.Sprintf("not a RateLimitConfig: %v", err)})
			continue
		}
		f, err := ruleFile(&config)
		if err != nil {
			problems = append(problems, descriptors.Problem{File: f.Name, Text: err.Error()})
		}
		s.Files = append(s.Files, f)
	}
	slices.SortStableFunc(s.Files, func(a, b descriptors.File) int { return cmp.Compare(a.Name, b.Name) })
	return s, problems
}

// Snapshot is the set in bytes that Restore reads.
func (s *Set) Snapshot(now time.Time) ([]byte, error) {
	wire, err := proto.Marshal(s.response)
	if err != nil {
		return nil, fmt.Errorf("encoding a snapshot: %w", err)
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.ModTime = now
	if _, err := z.Write(wire); err != nil {
		return nil, fmt.Errorf("encoding a snapshot: %w", err)
	}
	if err := z.Close(); err != nil {
		return nil, fmt.Errorf("encoding a snapshot: %w", err)
	}
	return b.Bytes(), nil
}

// Restore reads what Snapshot wrote. The error says that it is something else, or more than limit bytes.
func Restore(snapshot []byte, limit int) (*Set, error) {
	z, err := gzip.NewReader(bytes.NewReader(snapshot))
	if err != nil {
		return nil, fmt.Errorf("not a snapshot: %w", err)
	}
	wire, err := io.ReadAll(io.LimitReader(z, int64(limit)+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("not a snapshot: %w", err)
	case len(wire) > limit:
		return nil, fmt.Errorf("the snapshot has more than %d bytes", limit)
	}
	var r discovery.DiscoveryResponse
	if err := proto.Unmarshal(wire, &r); err != nil {
		return nil, fmt.Errorf("not a snapshot: %w", err)
	}
	s, problems := read(&r)
	if len(problems) > 0 {
		return nil, fmt.Errorf("not a snapshot: %s", problems[0])
	}
	s.Saved = z.ModTime
	return s, nil
}
