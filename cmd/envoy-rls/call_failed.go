package main

import (
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const otherName = "--server-name NAME is a name that its certificate has"

// nextSteps say what to do about a failed call, by what its error says.
var nextSteps = []struct{ says, do string }{
	{"connection refused", "is it running? --addr (RLS_ADDR) says where it listens"},
	{"no such file or directory", "is it running? --addr (RLS_ADDR) says where its socket is"},
	{"no such host", "--addr (RLS_ADDR) says where it listens"},
	{"looked like an HTTP/1.1 header", "this is an HTTP port: gRPC is on 8081, unless --grpc-port (GRPC_PORT) says otherwise"},
	{"error reading server preface", "it may speak TLS: try --tls, or --ca FILE"},
	{"first record does not look like a TLS handshake", "it does not speak TLS: leave away --tls, --ca, --cert and --key"},
	{"certificate signed by unknown authority", "--ca FILE names whom to trust"},
	{"certificate is valid for", otherName}, {"certificate is not valid for", otherName}, {"doesn't contain any IP SANs", otherName},
	{"certificate required", "it wants to know who you are: --cert FILE and --key FILE"},
	{"no rate limit configuration loaded", "/readyz of its HTTP port says what is wrong with its rules"},
	{"rate limit domain must not be empty", "--domain is the domain in Envoy's filter, and of a rule file"},
}

// callFailed is what is told of a call without an answer, and what to do next.
func (c *callCommand) callFailed(err error) error {
	code, text := status.Code(err), status.Convert(err).Message()
	do := ""
	for _, s := range nextSteps {
		if do == "" && strings.Contains(text, s.says) {
			do = "; " + s.do
		}
	}
	if do == "" && code == codes.DeadlineExceeded {
		do = "; --timeout says how long to wait"
	}
	return fmt.Errorf("asking %s: %s: %s%s", c.Addr, code, text, do)
}
