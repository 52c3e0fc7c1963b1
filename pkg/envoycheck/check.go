package envoycheck

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
)

// Check says what is wrong with c, by itself and, unless rules is nil, beside the rules that its filters ask for.
// The problems are in the order of files and lines. Each text ends with the name in brackets by which
// docs/envoy.md tells of its kind.
func (c *Config) Check(rules *descriptors.Ruleset) []descriptors.Problem {
	k := &checker{Config: c, rules: rules, seen: map[spotted]bool{}}
	for _, ch := range c.allChains() {
		k.chain(ch)
	}
	for i, n := range c.network {
		k.networkFilter(n, networkPath(i))
	}
	for _, name := range c.vhosts {
		k.hostName(name)
	}
	k.attachments()
	all := c.sends()
	for i := range all {
		k.send(&all[i])
	}
	if rules != nil {
		k.compare(all)
	}
	slices.SortStableFunc(k.problems, func(a, b descriptors.Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return k.problems
}

type checker struct {
	*Config
	rules    *descriptors.Ruleset
	problems []descriptors.Problem
	seen     map[spotted]bool
}

// chain checks a chain's filters, and what of its routes' limits they leave out.
func (c *checker) chain(ch *chain) {
	places := spots(c.tablesOf(ch))
	for _, f := range ch.limiters() {
		if f.config != nil {
			c.filter(ch, f, places)
		}
	}
	for i := range places {
		c.lists(ch, &places[i])
	}
}

func (c *checker) filter(ch *chain, f *filter, places []spot) {
	path := ch.name + "." + f.name
	c.texts(f.config, path)
	if f.misplaced {
		c.add(afterRouter, f.at.problem(path), "it comes after the router, where no request gets; put it before that")
	}
	if f.merged {
		return
	}
	c.wait(f.config, path)
	c.service(f.config, path)
	if f.config.get("filter_enabled", "default_value") != nil && isZero(f.config.get("filter_enabled", "default_value", "numerator").str()) {
		c.add(neverAsked, f.config.at("filter_enabled").problem(path), "it is enabled for 0 of its requests, unless the runtime says otherwise; raise numerator")
	}
	on := func(s spot) bool { _, on := f.mostSpecific(&s); return on }
	if f.disabled && len(places) > 0 && !slices.ContainsFunc(places, on) {
		c.add(neverAsked, f.at.at("disabled").problem(path), "it is disabled, and no route enables it; delete the line")
	}
}

// wait checks how long a filter waits, and for what.
func (c *checker) wait(config *tree, path string) {
	switch timeout := config.get("timeout"); {
	case timeout == nil:
		c.add(noTimeout, config.problem(path), "no timeout, hence 20 ms, which a first call, that has to connect, often misses; write timeout: 0.05s or more")
	case isZero(strings.TrimSuffix(timeout.str(), "s")):
		c.add(noTimeout, timeout.problem(path), "a timeout of 0 waits forever: a service that hangs holds every request; write 0.05s or more")
	}
	if !config.has("failure_mode_deny") && !config.has("failure_mode_deny_percent") && !c.dumped[config.file] {
		c.add(failureMode, config.problem(path), "nothing says what happens without an answer, and requests pass then; write failure_mode_deny: false, or true to refuse them")
	}
}

// isZero tells whether a number is 0, or isn't there.
func isZero(text string) bool {
	n, err := strconv.ParseFloat(text, 64)
	return text == "" || err == nil && n == 0
}

// service checks how the rate limit service is called.
func (c *checker) service(config *tree, path string) {
	service := config.get("rate_limit_service")
	if service == nil {
		return // Envoy refuses that by itself
	}
	if version := service.get("transport_api_version"); version.str() == "V2" {
		c.add(apiVersion, version.problem(path), "Envoy speaks V2 no longer; write transport_api_version: V3")
	}
	name := service.get("grpc_service", "envoy_grpc", "cluster_name")
	if name.str() == "" {
		return
	}
	if parts := strings.Split(name.str(), "|"); len(parts) == 4 { // outbound|port|subset|host, as Istio names them
		c.port(name, parts[1], path)
	}
	var names []string
	for _, cluster := range c.clusters {
		if cluster.get("name").str() == name.str() {
			c.http2(cluster)
			c.ports(cluster)
			return
		}
		names = append(names, cluster.get("name").str())
	}
	near, ok := descriptors.Nearest(name.str(), names)
	switch {
	case ok && !c.moreClusters:
		c.add(noCluster, name.problem(path), "there is no cluster %s; did you mean %s?", name.str(), near)
	case c.allClusters:
		c.add(noCluster, name.problem(path), "there is no cluster %s; add it, or name one that exists", name.str())
	}
}

// http2 checks that a cluster speaks HTTP/2.
func (c *checker) http2(cluster *tree) {
	if cluster.has("http2_protocol_options") {
		return
	}
	at := cluster
	if options := cluster.get("typed_extension_protocol_options"); options.isMapping() {
		for _, o := range options.values {
			kind, message := o.typed()
			if kind != httpOptions {
				continue
			}
			explicit := message.get("explicit_http_config")
			if explicit.has("http2_protocol_options") || explicit.has("http3_protocol_options") ||
				message.has("use_downstream_protocol_config") || message.has("auto_config") && cluster.has("transport_socket") {
				return
			}
			at = o
		}
	}
	c.add(noHTTP2, at.problem("cluster "+cluster.get("name").str()),
		"gRPC needs HTTP/2; write explicit_http_config: {http2_protocol_options: {}} into its HttpProtocolOptions")
}

// ports checks that a cluster's endpoints are at a port of gRPC.
func (c *checker) ports(cluster *tree) {
	for _, locality := range cluster.get("load_assignment", "endpoints").items() {
		for _, e := range locality.get("lb_endpoints").items() {
			port := e.get("endpoint", "address", "socket_address", "port_value")
			c.port(port, port.str(), "cluster "+cluster.get("name").str())
		}
	}
}

// otherPorts are those of this service, by default, that are not its gRPC's.
var otherPorts = map[string]string{"8080": "probes and metrics", "6070": "admin"}

func (c *checker) port(at *tree, number, path string) {
	if what, other := otherPorts[number]; other {
		c.add(wrongPort, at.problem(path), "%s is the port of %s, by default; write 8081, which is that of gRPC", number, what)
	}
}

func networkPath(i int) string { return "network filter " + strconv.Itoa(i) }

// networkFilter checks a filter that asks for connections.
func (c *checker) networkFilter(n *tree, path string) {
	c.texts(n, path)
	c.wait(n, path)
	c.service(n, path)
	for i, d := range n.get("descriptors").items() {
		for _, field := range []string{"limit", "hits_addend"} {
			if d.has(field) {
				c.add(hitsIgnored, d.at(field).problem(path+".descriptors["+strconv.Itoa(i)+"]"), "the network filter ignores %s; delete it", field)
			}
		}
	}
}

// ofIstio are names of virtual hosts of its own that have no port.
var ofIstio = []string{"allow_any", "block_all", "passthrough", "blackhole"}

func (c *checker) hostName(name *tree) {
	if text := name.str(); text != "" && !strings.Contains(text, ":") && !strings.Contains(text, "|") && !slices.Contains(ofIstio, text) {
		c.add(hostPort, name.problem("vhost"), "Istio's virtual hosts have names with a port; write %q, with the port of your Gateway or Service", text+":80")
	}
}

// attachments checks that the keys of typed_per_filter_config are names of filters. Those that an EnvoyFilter
// doesn't bring aren't known.
func (c *checker) attachments() {
	var names []string
	for _, ch := range c.allChains() {
		if ch.partial {
			return
		}
		for _, f := range ch.filters {
			names = append(names, f.name)
		}
	}
	for _, ch := range c.chains {
		for _, s := range spots(c.tablesOf(ch)) {
			for _, owner := range s.owners() {
				c.attached(owner.get("typed_per_filter_config"), s.path, names)
			}
		}
	}
}

func (c *checker) attached(configs *tree, path string, names []string) {
	if !configs.isMapping() {
		return
	}
	for i, key := range configs.keys {
		if kind, _ := configs.values[i].typed(); kind != globalRoute || key == nil || slices.Contains(names, key.text) {
			continue
		}
		mend := "write the name of the rate limit filter"
		if near, ok := descriptors.Nearest(key.text, names); ok {
			mend = "did you mean " + near + "?"
		}
		c.add(unattached, key.problem(path), "no filter of the chain has the name %s, so that this has no effect; %s", key.text, mend)
	}
}

// textFields are those in which Envoy wants text, and YAML may see a boolean or a number.
var textFields = []string{
	"domain", "descriptor_key", "descriptor_value", "default_value", "header_name", "query_parameter_name", "stat_prefix",
	"enable_x_ratelimit_headers", "x_ratelimit_option", "vh_rate_limits", "cluster_name", "exact", "prefix", "suffix", "contains",
}

// words11 are booleans in YAML 1.1, and text in YAML 1.2.
var words11 = []string{"y", "n", "yes", "no", "on", "off"}

// texts checks that what should be text below t is.
func (c *checker) texts(t *tree, path string) {
	if t == nil {
		return
	}
	for i, v := range t.values {
		c.texts(v, path)
		if !t.isMapping() || t.keys[i] == nil || !v.isScalar() || v.quoted || !slices.Contains(textFields, snake(t.keys[i].text)) {
			continue
		}
		word := slices.Contains(words11, strings.ToLower(v.text))
		if word || v.tag == "!!bool" || v.tag == "!!int" || v.tag == "!!float" {
			c.add(notText, v.problem(path), "%s is no text to Envoy; write %q, in quotes", v.text, v.text)
		}
	}
}
