// Package descriptors says which limits a descriptor meets: it reads the YAML that people write, compiles it
// to an immutable Ruleset or to every problem in it with file, line and column, and matches descriptors to
// rules. It has never heard of gRPC, Redis or time.
package descriptors
