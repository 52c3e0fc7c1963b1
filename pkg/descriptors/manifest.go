package descriptors

import (
	"bytes"
	"fmt"
	"strings"

	"gopkg.in/yaml.v3"
)

// Unpack returns, in the place of each Kubernetes ConfigMap manifest, the rule files that it holds, under the name of the
// manifest and their keys in data, as Kubernetes would mount them. Other files are returned as they are. Problems found in
// what it returns name lines of the manifest.
func Unpack(files ...File) []File {
	var all []File
	for _, f := range files {
		all = append(all, unpack(f)...)
	}
	return all
}

func unpack(f File) []File {
	var doc yaml.Node
	if yaml.NewDecoder(bytes.NewReader(f.Data)).Decode(&doc) != nil || len(doc.Content) == 0 {
		return []File{f}
	}
	root := doc.Content[0]
	if text(root, "kind") != "ConfigMap" {
		return []File{f}
	}
	data := valueOf(root, "data")
	if data == nil || data.Kind != yaml.MappingNode {
		return nil
	}
	lines := strings.Split(string(f.Data), "\n")
	var files []File
	for i := 0; i+1 < len(data.Content); i += 2 {
		key, value := data.Content[i], data.Content[i+1]
		if !isRuleFile(key.Value) {
			continue
		}
		file := File{Name: fmt.Sprintf("%s[%s]", f.Name, key.Value), Data: []byte(value.Value), shown: f.Name}
		if value.Style&yaml.LiteralStyle != 0 {
			file.line = value.Line
			file.column = indentation(lines[min(value.Line, len(lines)-1):])
		}
		files = append(files, file)
	}
	return files
}

func valueOf(n *yaml.Node, key string) *yaml.Node {
	if n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

func text(n *yaml.Node, key string) string {
	if v := valueOf(n, key); v != nil {
		return v.Value
	}
	return ""
}

// indentation is that of the first line that has text.
func indentation(lines []string) int {
	for _, line := range lines {
		if trimmed := strings.TrimLeft(line, " "); trimmed != "" {
			return len(line) - len(trimmed)
		}
	}
	return 0
}
