package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// convertCommand writes rules for another service.
type convertCommand struct {
	Paths []string   `arg:"" name:"path" help:"Rule files, directories of them, and Kubernetes ConfigMap manifests."`
	To    compatMode `required:"" placeholder:"NAME" help:"Who shall read them: envoyproxy-ratelimit. Its own rules need no conversion here."`
	Out   string     `placeholder:"DIR" help:"A new or empty directory, for any number of files; else the one file is printed."`
	Merge bool       `name:"merge-domains" env:"MERGE_DOMAIN_CONFIG" help:"Several files may have rules for one domain."`

	Compat                compatMode    `env:"COMPAT" placeholder:"NAME" help:"The mode that the rules run in, and with it the defaults below: as those of serve."`
	DefaultAlgorithm      algorithm     `env:"DEFAULT_ALGORITHM" default:"fixed_window" help:"For limits that name none."`
	DefaultCountDenied    bool          `env:"DEFAULT_COUNT_DENIED" default:"${count_denied}" help:"Whether refused requests cost something, for rules that don't say."`
	DefaultOnStoreFailure failurePolicy `env:"DEFAULT_ON_STORE_FAILURE" default:"${on_store_failure}" help:"What answers when the store can't, for rules that don't say."`
}

// Help is the end of convert --help.
func (convertCommand) Help() string {
	return `What can't be said there comes as near as can be. It is told of on stderr, by the place in the rules, and in comments.

Example:
  envoy-rls convert --to=envoyproxy-ratelimit --out=old rules/

Exit status: 0 written, 1 the rules are wrong or could not be written, 2 they could not be read.`
}

// Run implements the command.
func (c *convertCommand) Run(s streams) error {
	roots, files, err := readWithRoots(c.Paths)
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("nothing to convert: no rule files in %s", strings.Join(c.Paths, ", "))
	}
	if err != nil {
		s.complain(err)
		return exitCode(exitUsage)
	}
	converted, problems := descriptors.ToReplaced(files, descriptors.Options{
		FileOrder: c.Compat != "", Merge: c.Merge,
		Defaults: descriptors.Defaults{
			Algorithm: limiter.Algorithm(c.DefaultAlgorithm), CountDenied: c.DefaultCountDenied,
			OnStoreFailure: limiter.FailurePolicy(c.DefaultOnStoreFailure),
		},
	})
	for _, p := range problems {
		fmt.Fprintln(s.err, onTerminal(p.String()))
	}
	switch {
	case descriptors.HasErrors(problems):
		return exitCode(exitError)
	case c.Out != "":
		return c.write(converted, roots)
	case len(converted) > 1:
		s.complain(fmt.Errorf("these are %d files; give --out=DIR", len(converted)))
		return exitCode(exitUsage)
	}
	for _, f := range converted {
		if _, err := s.out.Write(f.Data); err != nil {
			return err
		}
	}
	return nil
}

// readWithRoots reads rules, and returns the names of files below the path that each was found by.
func readWithRoots(paths []string) (names map[string]string, files []descriptors.File, err error) {
	names = map[string]string{}
	for _, root := range paths {
		read, err := descriptors.ReadFiles([]string{root})
		if err != nil {
			return nil, nil, err
		}
		for _, f := range read {
			parts := descriptors.Unpack(f)
			for _, part := range parts {
				names[part.Name] = nameBelow(root, f.Name, part.Name)
			}
			files = append(files, parts...)
		}
	}
	return names, files, nil
}

// nameBelow is the name of a part of a file: of a manifest its own, else the file's below the root.
func nameBelow(root, file, part string) string {
	if key, ok := strings.CutPrefix(part, file+"["); ok {
		return strings.TrimSuffix(key, "]")
	}
	if name, err := filepath.Rel(root, file); err == nil && name != "." {
		return name
	}
	return filepath.Base(file)
}

// write writes files into the directory. The service that reads it reads all that is there, so that nothing else may be.
func (c *convertCommand) write(files []descriptors.File, names map[string]string) error {
	if there, err := os.ReadDir(c.Out); err == nil && len(there) > 0 {
		return fmt.Errorf("%s is not empty, and all in it would be read as rules; name a new directory", c.Out)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, f := range files {
		name := filepath.Join(c.Out, names[f.Name])
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := writeNew(name, f.Data); err != nil {
			return err
		}
	}
	return nil
}

// writeNew writes a file that is not there yet.
func writeNew(name string, data []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}
