package envoycheck

import (
	"fmt"
	"slices"
	"strings"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
)

// Send is what Envoy sends for requests of a route, or for a connection, as long as its rate limit filter isn't told otherwise at
// run time.
type Send struct {
	// Route is where the route stands, or the network filter, as in the paths of problems.
	Route string
	// Domain is "" if it isn't known.
	Domain string
	// Cluster is where the route leads, or "".
	Cluster string
	// Client is whose address is sent. It isn't known if no descriptor has one.
	Client Client
	// Descriptors are those of each limit in the order of the file.
	Descriptors []Descriptor
}

// String is what is sent in words: "shop.routes[0] sends to domain shop: (user=…) or nothing, (plan=free)", and behind
// an address whose it is: "; the client is whoever connects".
func (s Send) String() string {
	texts := make([]string, len(s.Descriptors))
	for i, d := range s.Descriptors {
		var forms []string
		for _, shape := range d.Shapes {
			forms = append(forms, shapeText(shape))
		}
		if d.Droppable {
			forms = append(forms, "nothing")
		}
		texts[i] = strings.Join(forms, " or ")
		if d.OnDone {
			texts[i] += " when done"
		}
	}
	domain := "a domain that isn't known"
	if s.Domain != "" {
		domain = "domain " + s.Domain
	}
	client := ""
	if s.Client.Known {
		client = fmt.Sprintf("; the client is %s", s.Client)
	}
	return fmt.Sprintf("%s sends to %s: %s%s", s.Route, domain, strings.Join(texts, ", "), client)
}

// Descriptor is what one limit makes.
type Descriptor struct {
	// Shapes are those that it can have, the longest first.
	Shapes [][]descriptors.Pattern
	// Droppable tells that it may also not be sent at all.
	Droppable bool
	// OnDone tells that it is sent when the stream is done.
	OnDone bool
}

// Sends are what Envoy sends: for requests, one for each filter that asks and each route, in their order, and for connections,
// one for each network filter.
func (c *Config) Sends() []Send {
	var list []Send
	for _, s := range c.sends() {
		out := Send{Route: s.spot.path, Domain: s.domain.str(), Cluster: s.spot.cluster()}
		for _, l := range s.limits {
			droppable := slices.ContainsFunc(l.parts, func(p part) bool { return p.absent == dropped || p.absent == filtered })
			if slices.ContainsFunc(l.parts, func(p part) bool { return p.address }) {
				out.Client = s.chain.client()
			}
			out.Descriptors = append(out.Descriptors, Descriptor{shapes(l.parts), droppable, l.onDone})
		}
		list = append(list, out)
	}
	for i, n := range c.network {
		out := Send{Route: networkPath(i), Domain: n.get("domain").str()}
		for _, d := range n.get("descriptors").items() {
			out.Descriptors = append(out.Descriptors, Descriptor{Shapes: [][]descriptors.Pattern{networkShape(d)}})
		}
		list = append(list, out)
	}
	return list
}
