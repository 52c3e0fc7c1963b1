// Package deploytest holds the tests of the manifests and of the Dockerfile. It is a module of its own
// so that Kubernetes' types stay out of the server's go.mod.
package deploytest
