// Command figures has the simulator run the algorithms in virtual time over some patterns of traffic, and writes
// what comes of it into docs: a table in algorithms.md and pictures beside it. Its output depends on nothing but
// the code: seeds are fixed, and there is no other clock.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/envoy-rls/envoy-rls/internal/chart"
)

//go:generate go run .

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "figures:", err)
		os.Exit(1)
	}
}

func run() error {
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	results, err := measure()
	if err != nil {
		return err
	}
	files, err := generate(root, results)
	if err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(root, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// moduleRoot is the nearest directory upwards that holds a go.mod.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("there is no go.mod here or above")
		}
		dir = filepath.Dir(dir)
	}
}

// document is the page that holds the table.
const document = "docs/algorithms.md"

// generate returns the generated files by their names below the root, as they should be by what was measured.
func generate(root string, results [][]result) (map[string][]byte, error) {
	page, err := os.ReadFile(filepath.Join(root, document))
	if err != nil {
		return nil, err
	}
	around, err := edgePicture()
	if err != nil {
		return nil, err
	}
	page, err = between(page, "simulation", table(results))
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{document: page}
	for name, data := range map[string]any{"edge": around, "bounds": boundsPicture(results)} {
		picture, err := chart.Draw(templates, name, data)
		if err != nil {
			return nil, fmt.Errorf("drawing %s: %w", name, err)
		}
		files["docs/img/algorithms-"+name+".svg"] = picture
	}
	return files, nil
}

// between puts text between a page's markers of a name.
func between(page []byte, name, text string) ([]byte, error) {
	begin, end := fmt.Appendf(nil, "<!-- %s: generated -->\n", name), fmt.Appendf(nil, "<!-- %s: end -->\n", name)
	before, rest, found := bytes.Cut(page, begin)
	_, after, ends := bytes.Cut(rest, end)
	if !found || !ends {
		return nil, fmt.Errorf("%s has no place marked for %s", document, name)
	}
	return bytes.Join([][]byte{before, begin, []byte(text), end, after}, nil), nil
}
