package proctest

import (
	"fmt"
	"testing"
)

// StartSecureRedis starts a redis-server that also speaks TLS, at the address secured, with an authority's certificate of
// a name and to clients that have one of the authority. It reads their files at the start, and by ReadCertificates.
func StartSecureRedis(t testing.TB, a *Authority, name string) (r *Redis, secured string) {
	t.Helper()
	port := FreePort(t)
	r = StartRedis(t, "--tls-port", fmt.Sprint(port), "--tls-cert-file", a.File(name+".crt"), "--tls-key-file", a.File(name+".key"),
		"--tls-ca-cert-file", a.File("ca.crt"), "--tls-auth-clients", "yes")
	return r, fmt.Sprintf("127.0.0.1:%d", port)
}

// ReadCertificates has a server of StartSecureRedis read its files again, for connections from now on.
func (r *Redis) ReadCertificates(a *Authority, name string) {
	r.t.Helper()
	must(r.t, r.Client().Do(r.t.Context(), "CONFIG", "SET", "tls-cert-file", a.File(name+".crt"), "tls-key-file", a.File(name+".key"),
		"tls-ca-cert-file", a.File("ca.crt")).Err())
}
