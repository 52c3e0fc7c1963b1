// Package monitoring holds the tests of the alert rules, the dashboard and the runbook: the real program is scraped under real
// traffic and real faults, and a real Prometheus's engine answers. It is a module of its own so that Prometheus stays out of
// the server's go.mod.
package monitoring
