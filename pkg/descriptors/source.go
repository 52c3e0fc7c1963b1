package descriptors

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxDirDepth bounds how deep directories are read, and so ends circles of links.
const maxDirDepth = 16

// Source is where rule files are. A path that is a directory stands for all files below it that end in .yaml or
// .yml. Names that start with a dot are not read, as those of editors are not meant to be. Links are followed.
type Source struct {
	Paths []string
	// AnyName reads files of a directory that end otherwise, too, if a line of theirs begins with the word domain.
	AnyName bool
	// DotNames reads names that start with a dot, too. Those that start with two never are: Kubernetes keeps the
	// versions of a volume in them, and the volume's own names lead there.
	DotNames bool
}

// ReadFiles reads the rule files of a Source of paths, all of them or none.
func ReadFiles(paths []string) ([]File, error) {
	files, err := Source{Paths: paths}.Read()
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		if f.Unread != nil {
			return nil, fmt.Errorf("reading rules: %s: %w", f.Name, f.Unread)
		}
	}
	return files, nil
}

// Read reads all files. Those that can't be read are Unread; the error says which path or directory can't be.
func (s Source) Read() ([]File, error) {
	var files []File
	for _, p := range s.Paths {
		names, err := s.files(p, maxDirDepth)
		if err != nil {
			return nil, fmt.Errorf("reading rules: %w", err)
		}
		for _, name := range names {
			data, err := readFile(name)
			if errors.Is(err, fs.ErrNotExist) && name != p {
				continue // it was there a moment ago
			}
			if isRuleFile(name) || name == p || err != nil || namesDomain(data) {
				files = append(files, File{Name: name, Data: data, Unread: err})
			}
		}
	}
	return files, nil
}

// maxFile is the size of the largest file that is read, in bytes. What its rules take is fifty times that.
const maxFile = 64 << 20

// readFile reads a file, which may be a pipe, or a device that has no end. Its errors leave the name out.
func readFile(name string) (data []byte, err error) {
	f, err := os.Open(name)
	if err == nil {
		defer func() { _ = f.Close() }() // it was only read
		data, err = io.ReadAll(io.LimitReader(f, maxFile+1))
	}
	var at *fs.PathError
	switch {
	case errors.As(err, &at):
		return nil, at.Err
	case len(data) > maxFile:
		return nil, fmt.Errorf("it is larger than %d MiB, the most that a rule file may have", maxFile>>20)
	}
	return data, err
}

// OtherFiles says which files of directories ReadFiles leaves out because of their names, since the service that
// this one replaces reads them as rules.
func OtherFiles(paths []string) []Problem {
	var others []Problem
	for _, p := range paths {
		_ = filepath.WalkDir(p, func(name string, e fs.DirEntry, err error) error {
			switch below, _ := filepath.Rel(p, name); {
			case err != nil || name == p || !e.Type().IsRegular(): // what can't be read, ReadFiles tells of
			case strings.HasPrefix(below, ".") || strings.Contains(below, string(filepath.Separator)+"."):
				others = append(others, Problem{
					Severity: Warning, File: name,
					Text: "the replaced service reads hidden files, too; set RUNTIME_IGNOREDOTFILES=true there",
				})
			case !isRuleFile(name):
				others = append(others, Problem{
					File: name, Text: "the replaced service reads every file of a directory as rules; move it elsewhere",
				})
			}
			return nil
		})
	}
	return others
}

func (s Source) files(path string, depth int) ([]string, error) {
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
		if s.hides(e.Name()) {
			continue
		}
		info, err := os.Stat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was there a moment ago
		}
		if err == nil && info.IsDir() {
			below, err := s.files(name, depth-1)
			if err != nil {
				return nil, err
			}
			names = append(names, below...)
			continue
		}
		if (err != nil || info.Mode().IsRegular()) && (s.AnyName || isRuleFile(name)) { // reading it comes to the error again
			names = append(names, name)
		}
	}
	return names, nil
}

// hides tells whether a name of a directory is passed over.
func (s Source) hides(name string) bool {
	return strings.HasPrefix(name, "..") || strings.HasPrefix(name, ".") && !s.DotNames
}

// namesDomain tells a rule file from notes.
func namesDomain(data []byte) bool {
	for line := range bytes.Lines(data) {
		if bytes.HasPrefix(line, []byte("domain")) {
			return true
		}
	}
	return false
}

func isRuleFile(name string) bool {
	return slices.Contains([]string{".yaml", ".yml"}, filepath.Ext(name))
}
