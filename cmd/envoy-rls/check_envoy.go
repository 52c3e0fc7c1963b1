package main

import (
	"fmt"
	"os"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/envoycheck"
)

// readEnvoy reads the configuration of an Envoy out of files.
func readEnvoy(names []string) (*envoycheck.Config, error) {
	files := make([]descriptors.File, len(names))
	for i, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("reading an Envoy's configuration: %w", err)
		}
		files[i] = descriptors.File{Name: name, Data: data}
	}
	return envoycheck.Read(files)
}

// compare says what is wrong with an Envoy's configuration. Rules of which some are not used, or that were not
// given, are not what its filters ask for.
func (c *checkCommand) compare(envoy *envoycheck.Config, rules *descriptors.Ruleset, problems []descriptors.Problem) []descriptors.Problem {
	if len(c.Envoy) == 0 {
		return nil
	}
	if len(c.Paths) == 0 || descriptors.HasErrors(problems) {
		rules = nil
	}
	return envoy.Check(rules)
}

// sends says in words what the Envoy sends, by route.
func (c *checkCommand) sends(s streams, envoy *envoycheck.Config) {
	for _, send := range envoy.Sends() {
		if len(send.Descriptors) > 0 {
			fmt.Fprintln(s.out, onTerminal(send.String()))
		}
	}
}
