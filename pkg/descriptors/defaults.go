package descriptors

import (
	"slices"

	"gopkg.in/yaml.v3"

	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// Defaults are what a rule does where its file doesn't say.
type Defaults struct {
	Algorithm      limiter.Algorithm
	CountDenied    bool
	OnStoreFailure limiter.FailurePolicy
}

// partialDefaults are those that a file says; nil is not said.
type partialDefaults struct {
	algorithm   *limiter.Algorithm
	countDenied *bool
	onFailure   *limiter.FailurePolicy
}

// over is d, with what p says in its place.
func (p partialDefaults) over(d Defaults) Defaults {
	if p.algorithm != nil {
		d.Algorithm = *p.algorithm
	}
	if p.countDenied != nil {
		d.CountDenied = *p.countDenied
	}
	if p.onFailure != nil {
		d.OnStoreFailure = *p.onFailure
	}
	return d
}

func (r *reader) partialDefaults(n *yaml.Node) partialDefaults {
	var p partialDefaults
	for _, f := range r.fields(n, "defaults", defaultsBlock) {
		path := "defaults." + f.key.Value
		switch f.key.Value {
		case "algorithm":
			a := r.algorithm(f.value, path)
			p.algorithm = &a
		case "count_denied":
			b := r.flag(f.value, path)
			p.countDenied = &b
		case "on_store_failure":
			f := r.failurePolicy(f.value, path)
			p.onFailure = &f
		}
	}
	return p
}

// globs are domains with stars in them, for which a file has defaults.
func (r *reader) globs(n *yaml.Node) []string {
	globs := []string{}
	for _, item := range r.items(n, "domains") {
		globs = append(globs, r.text(item, "domains"))
	}
	if len(globs) == 0 {
		r.errorf(n, "domains", "an empty list is for no domain; write their names, with * for any text")
	}
	return globs
}

// defaultsOf are the defaults of domains: those of the settings, and what files without rules say over them.
type defaultsOf struct {
	settings Defaults
	globs    []globDefaults
}

// globDefaults are what a file without rules says of the domains that match.
type globDefaults struct {
	wildcard
	of *spec
}

func (o *defaultsOf) add(s *spec) {
	for _, glob := range s.domains {
		o.globs = append(o.globs, globDefaults{newWildcard(glob), s})
	}
	slices.SortStableFunc(o.globs, func(a, b globDefaults) int { return compareWildcards(a.wildcard, b.wildcard) })
}

// domain is what the most specific glob that matches a domain says. It says nothing where none does.
func (o *defaultsOf) domain(name string) *spec {
	for i := range o.globs {
		if g := &o.globs[i]; g.matches(name) {
			return g.of
		}
	}
	return &spec{}
}
