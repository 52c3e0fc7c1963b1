// Package rls speaks Envoy's rate limit protocol, envoy.service.ratelimit.v3, and does nothing else: it turns
// a request into a batch of hits, lets a store decide it, and turns the decisions into an answer. It has
// never heard of Redis.
package rls
