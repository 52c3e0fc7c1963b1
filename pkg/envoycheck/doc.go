// Package envoycheck reads what an Envoy is told of rate limits, works out which descriptors it will send for
// which route, and compares them with the rules. Envoy accepts most mistakes in silence: a key that no rule has,
// limits that others switch off, a call that comes too late.
//
// It reads YAML nodes rather than Envoy's messages, so that every finding has its line, a field of a newer Envoy
// is no mistake, and no message types are linked in. That its names are Envoy's is held by a test.
package envoycheck
