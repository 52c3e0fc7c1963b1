package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Results is the directory where a run leaves what it found, as text and as a picture. Empty is nowhere.
type Results string

// save writes name.txt and, if there is a picture, name.svg.
func (r Results) save(name string, text func(io.Writer) error, picture func() ([]byte, error)) error {
	if r == "" {
		return nil
	}
	words := new(bytes.Buffer)
	if err := text(words); err != nil {
		return err
	}
	files := map[string][]byte{".txt": words.Bytes()}
	if picture != nil {
		drawn, err := picture()
		if err != nil {
			return fmt.Errorf("draw %s: %w", name, err)
		}
		files[".svg"] = drawn
	}
	if err := os.MkdirAll(string(r), 0o755); err != nil {
		return fmt.Errorf("save results: %w", err)
	}
	for suffix, content := range files {
		if err := os.WriteFile(filepath.Join(string(r), name+suffix), content, 0o644); err != nil {
			return fmt.Errorf("save results: %w", err)
		}
	}
	return nil
}
