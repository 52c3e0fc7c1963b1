// Package xds gets rules from a control plane: it is a client of the aggregated discovery service for
// RateLimitConfig, as Envoy Gateway and Envoy AI Gateway serve it, by the state-of-the-world protocol.
package xds
