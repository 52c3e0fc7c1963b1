package descriptors

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxDirDepth bounds how deep directories are read, and so ends circles of links.
const maxDirDepth = 16

// ReadFiles reads rule files. A path that is a directory stands for all files below it that end in .yaml or
// .yml; names that start with a dot are never read, which are the hidden ones of Kubernetes' volumes and of
// editors. Links are followed. The error says which path can't be read.
func ReadFiles(paths []string) ([]File, error) {
	var files []File
	for _, p := range paths {
		names, err := ruleFiles(p, maxDirDepth)
		if err != nil {
			return nil, fmt.Errorf("reading rules: %w", err)
		}
		for _, name := range names {
			data, err := os.ReadFile(name)
			if err != nil {
				return nil, fmt.Errorf("reading rules: %w", err)
			}
			files = append(files, File{Name: name, Data: data})
		}
	}
	return files, nil
}

// OtherFiles are the files of directories that ReadFiles leaves out because of their names. The service that
// this one replaces reads them as rules.
func OtherFiles(paths []string) []string {
	var others []string
	for _, p := range paths {
		_ = filepath.WalkDir(p, func(name string, e fs.DirEntry, err error) error {
			if err == nil && name != p && e.Type().IsRegular() && !isRuleFile(name) {
				others = append(others, name)
			}
			return nil // what can't be read, ReadFiles tells of
		})
	}
	return others
}

func ruleFiles(path string, depth int) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	if depth == 0 {
		return nil, fmt.Errorf("%s: directories are nested more than %d deep, or linked in a circle", path, maxDirDepth)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		name := filepath.Join(path, e.Name())
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		info, err := os.Stat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was there a moment ago
		}
		if err != nil {
			return nil, err
		}
		if info.IsDir() {
			below, err := ruleFiles(name, depth-1)
			if err != nil {
				return nil, err
			}
			names = append(names, below...)
			continue
		}
		if isRuleFile(name) {
			names = append(names, name)
		}
	}
	return names, nil
}

func isRuleFile(name string) bool {
	return slices.Contains([]string{".yaml", ".yml"}, filepath.Ext(name))
}
