package envoycheck

import (
	"fmt"
	"strconv"
	"strings"
)

// xffDetection is the one of the extensions that find out a client's address that reads x-forwarded-for.
const xffDetection = "envoy.extensions.http.original_ip_detection.xff.v3.XffConfig"

// Client is whom Envoy takes for the client.
type Client struct {
	// Entry is the one of x-forwarded-for, counted from its end. If that has fewer, or Entry is 0, it is whoever connects.
	Entry int
	// Known is false if it depends on something else.
	Known bool
}

// String says who it is, if that is known.
func (c Client) String() string {
	switch c.Entry {
	case 0:
		return "whoever connects"
	case 1:
		return "the last of x-forwarded-for"
	}
	return fmt.Sprintf("the last but %d of x-forwarded-for", c.Entry-1)
}

// client is whom a chain takes for the client.
func (ch *chain) client() Client {
	if ch.manager == nil {
		return Client{}
	}
	if extensions := ch.manager.get("original_ip_detection_extensions").items(); len(extensions) > 0 {
		kind, xff := extensions[0].get("typed_config").typed()
		return Client{Entry: hops(xff) + 1, Known: len(extensions) == 1 && kind == xffDetection && !xff.has("xff_trusted_cidrs")}
	}
	if ch.manager.get("use_remote_address").isTrue() {
		return Client{Entry: hops(ch.manager), Known: true}
	}
	return Client{Entry: hops(ch.manager) + 1, Known: true}
}

// hops is the number of proxies that are said to be before Envoy.
func hops(config *tree) int {
	n, err := strconv.ParseUint(config.get("xff_num_trusted_hops").str(), 10, 16)
	if err != nil {
		return 0
	}
	return int(n)
}

// addresses checks that no client chooses its own address. That Envoy takes whoever connects for the client is right or
// wrong by what is before it, which its configuration doesn't say.
func (c *checker) addresses(s *send, l *limit) {
	manager := s.chain.manager
	for _, p := range l.parts {
		switch {
		case strings.EqualFold(p.source, "header x-forwarded-for"):
			c.add(chosenAddress, p.at.problem(l.path), "clients write what x-forwarded-for begins with, and have a new counter for each text; write remote_address: {}")
		case p.address && manager != nil && !manager.get("use_remote_address").isTrue() &&
			hops(manager) == 0 && !manager.has("original_ip_detection_extensions"):
			c.add(chosenAddress, manager.at("use_remote_address").problem(s.chain.name),
				"the address of %s is the last of x-forwarded-for, which clients write who reach Envoy without a proxy; write use_remote_address: true, and xff_num_trusted_hops: N if N proxies are before it", l.path)
		}
	}
}
