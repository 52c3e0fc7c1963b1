package descriptors_test

import (
	"fmt"
	"strings"
	"testing"

	"gopkg.in/yaml.v2"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
)

// replaced is envoyproxy/ratelimit, as far as it is about rules: what it refuses, and which limit a descriptor gets.
type replaced struct {
	domains map[string]*replacedNode
}

type replacedNode struct {
	text      string // key, or key_value
	wildcards []*replacedNode
	children  map[string]*replacedNode
	limit     string // "3 per minute", "unlimited", or none
}

// replacedFile is a rule file as the service decodes it.
type replacedFile struct {
	Domain      string
	Descriptors []replacedDescriptor
}

type replacedDescriptor struct {
	Key, Value string
	RateLimit  *struct {
		RequestsPerUnit uint32 `yaml:"requests_per_unit"`
		Unit            string
		Unlimited       bool
		Name            string
		Replaces        []struct{ Name string }
	} `yaml:"rate_limit"`
	Descriptors    []replacedDescriptor
	ShadowMode     bool `yaml:"shadow_mode"`
	QuotaMode      bool `yaml:"quota_mode"`
	DetailedMetric bool `yaml:"detailed_metric"`
	ValueToMetric  bool `yaml:"value_to_metric"`
	ShareThreshold bool `yaml:"share_threshold"`
	Metadata       map[any]any
}

var replacedKeys = map[string]bool{
	"domain": true, "key": true, "value": true, "descriptors": true, "rate_limit": true, "unit": true,
	"requests_per_unit": true, "unlimited": true, "shadow_mode": true, "quota_mode": true, "name": true, "replaces": true,
	"detailed_metric": true, "value_to_metric": true, "share_threshold": true, "metadata": true,
}

// load refuses what the service refuses.
func (r *replaced) load(data []byte) error {
	var generic map[any]any
	if err := yaml.Unmarshal(data, &generic); err != nil {
		return fmt.Errorf("error loading config file: %w", err)
	}
	if err := checkReplacedKeys(generic); err != nil {
		return err
	}
	var f replacedFile
	if err := yaml.Unmarshal(data, &f); err != nil {
		return fmt.Errorf("error loading config file: %w", err)
	}
	switch {
	case f.Domain == "":
		return fmt.Errorf("config file cannot have empty domain")
	case r.domains[f.Domain] != nil:
		return fmt.Errorf("duplicate domain '%s' in config file", f.Domain)
	}
	root := &replacedNode{children: map[string]*replacedNode{}}
	r.domains[f.Domain] = root
	return root.add(f.Domain, f.Descriptors)
}

// checkReplacedKeys is its first pass, over a flat table of keys.
func checkReplacedKeys(m map[any]any) error {
	for k, v := range m {
		key, ok := k.(string)
		switch {
		case !ok:
			return fmt.Errorf("config error, key is not of type string: %v", k)
		case !replacedKeys[key]:
			return fmt.Errorf("config error, unknown key '%s'", key)
		case key == "metadata":
			continue
		}
		if err := checkReplacedValue(v); err != nil {
			return err
		}
	}
	return nil
}

func checkReplacedValue(v any) error {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			below, ok := item.(map[any]any)
			if !ok {
				return fmt.Errorf("config error, yaml file contains list of type other than map: %v", item)
			}
			if err := checkReplacedKeys(below); err != nil {
				return err
			}
		}
		return nil
	case map[any]any:
		return checkReplacedKeys(v)
	case string, int, bool, nil:
		return nil
	}
	return fmt.Errorf("error checking config: %T", v)
}

func (n *replacedNode) add(path string, list []replacedDescriptor) error {
	for i := range list {
		d := &list[i]
		if d.Key == "" {
			return fmt.Errorf("descriptor has empty key")
		}
		child := &replacedNode{text: d.Key, children: map[string]*replacedNode{}}
		if d.Value != "" {
			child.text += "_" + d.Value
		}
		path := path + "." + child.text
		if n.children[child.text] != nil {
			return fmt.Errorf("duplicate descriptor composite key '%s'", path)
		}
		if err := child.check(d, path); err != nil {
			return err
		}
		n.children[child.text] = child
		if strings.Contains(child.text, "*") {
			n.wildcards = append(n.wildcards, child)
		}
		if err := child.add(path, d.Descriptors); err != nil {
			return err
		}
	}
	return nil
}

// check checks the limit and flags of a descriptor.
func (n *replacedNode) check(d *replacedDescriptor, path string) error {
	if l := d.RateLimit; l != nil {
		_, valid := descriptors.ParseUnit(l.Unit)
		switch {
		case l.Unlimited && valid:
			return fmt.Errorf("%s: should not specify rate limit unit when unlimited", path)
		case !l.Unlimited && !valid:
			return fmt.Errorf("%s: invalid rate limit unit '%s'", path, l.Unit)
		}
		for _, r := range l.Replaces {
			if r.Name == "" || r.Name == l.Name {
				return fmt.Errorf("%s: replaces %q", path, r.Name)
			}
		}
		n.limit = "no limit"
		if !l.Unlimited {
			n.limit = fmt.Sprintf("%d per %s", l.RequestsPerUnit, strings.ToLower(l.Unit))
		}
	}
	if d.ShareThreshold && !strings.Contains(n.text, "*") {
		return fmt.Errorf("share_threshold can only be used with wildcard values, but found key '%s'", n.text)
	}
	return nil
}

// match is the limit of a descriptor, or none: the whole text wins over the first wildcard, that over the key.
func (r *replaced) match(domain string, entries []descriptors.Entry) string {
	n := r.domains[domain]
	for _, e := range entries {
		if n = n.child(e); n == nil {
			return ""
		}
	}
	return n.limit
}

func (n *replacedNode) child(e descriptors.Entry) *replacedNode {
	text := e.Key + "_" + e.Value
	if c := n.children[text]; c != nil {
		return c
	}
	for _, w := range n.wildcards {
		if starsMatch(w.text, text) {
			return w
		}
	}
	return n.children[e.Key]
}

// starsMatch is the plainest way to match stars.
func starsMatch(pattern, text string) bool {
	switch {
	case pattern == "":
		return text == ""
	case pattern[0] == '*':
		return starsMatch(pattern[1:], text) || text != "" && starsMatch(pattern, text[1:])
	}
	return text != "" && pattern[0] == text[0] && starsMatch(pattern[1:], text[1:])
}

// loaded is the service with some files, all of which it takes.
func loaded(t testing.TB, files []descriptors.File) *replaced {
	t.Helper()
	r := &replaced{domains: map[string]*replacedNode{}}
	for _, f := range files {
		if err := r.load(f.Data); err != nil {
			t.Fatalf("%s: %v\n%s", f.Name, err, f.Data)
		}
	}
	return r
}

// TestWhatTheCheckPassesTheReplacedServiceLoads holds check --for to what the service refuses.
func TestWhatTheCheckPassesTheReplacedServiceLoads(t *testing.T) {
	var names []string
	for _, pattern := range []string{"testdata/good/*.yaml", "testdata/doubtful/*.yaml", "../../config/*.yaml", "../../config/examples/*.yaml"} {
		names = append(names, glob(t, pattern)...)
	}
	passed := 0
	for _, name := range names {
		passed += checkedAndLoaded(t, readFile(t, name))
	}
	if passed == 0 {
		t.Error("no file passes, which proves nothing")
	}
}

// checkedAndLoaded returns 1 if f passes the check, and fails if the service is of another mind.
func checkedAndLoaded(t *testing.T, f descriptors.File) int {
	t.Helper()
	_, before := descriptors.Compile([]descriptors.File{f}, descriptors.Options{FileOrder: true})
	_, problems := descriptors.Compile([]descriptors.File{f}, descriptors.Options{FileOrder: true, ForReplaced: true})
	err := (&replaced{domains: map[string]*replacedNode{}}).load(f.Data)
	switch refused := descriptors.HasErrors(problems); {
	case descriptors.HasErrors(before): // it is refused here, too
		return 0
	case !refused && err != nil:
		t.Errorf("%s passes, and is refused: %v\n%s", f.Name, err, f.Data)
	case refused && err == nil:
		t.Errorf("%s is taken, and the check says %v\n%s", f.Name, problems, f.Data)
	case refused:
		return 0
	}
	return 1
}

func FuzzTheCheckAndTheReplacedServiceAreOfOneMind(f *testing.F) {
	for _, pattern := range []string{"testdata/good/*.yaml", "testdata/doubtful/*.yaml", "../../config/examples/*.yaml"} {
		for _, name := range glob(f, pattern) {
			f.Add(readFile(f, name).Data)
		}
	}
	f.Add([]byte("domain: d\ndescriptors: [{key: a, value: 1.5}, {key: a, value: 18446744073709551615}, {key: a_b, value: c}, {key: a, value: b_c}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		checkedAndLoaded(t, descriptors.File{Name: "fuzz.yaml", Data: data})
	})
}
