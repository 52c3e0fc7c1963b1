// Package lua holds the script that a Redis store runs. README.md beside it is the script's contract.
package lua

import (
	"embed"
	"io/fs"
	"strings"
)

//go:embed *.lua
var parts embed.FS

// kernelsHere is the line of engine.lua that the algorithms' parts take the place of.
const kernelsHere = "-- kernels\n"

// Engine returns the whole script: engine.lua with the kernels in it, in the order of their names. An error
// means that the build left a part out.
func Engine() (string, error) {
	names, err := fs.Glob(parts, "kernel_*.lua")
	if err != nil {
		return "", err
	}
	var kernels strings.Builder
	for _, name := range names {
		text, err := parts.ReadFile(name)
		if err != nil {
			return "", err
		}
		kernels.Write(text)
	}
	engine, err := parts.ReadFile("engine.lua")
	return strings.Replace(string(engine), kernelsHere, kernels.String(), 1), err
}

// Replicas is the script by which replicas know of each other: it notes under KEYS[1] that the replica ARGV[1] is
// alive, and returns those that were so within the last ARGV[2] milliseconds.
//
//go:embed replicas.lua
var Replicas string

// Notes is the script that keeps small texts for all replicas; its own words say how.
//
//go:embed notes.lua
var Notes string
