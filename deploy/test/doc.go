// Package deploytest holds the tests of the manifests, of the Dockerfile and of the documents' kubectl commands. It is a module of its own
// so that Kubernetes' types stay out of the server's go.mod.
package deploytest
