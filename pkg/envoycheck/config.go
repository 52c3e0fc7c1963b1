package envoycheck

import (
	"fmt"
	"slices"
	"strings"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
)

// Config is what an Envoy is told, in all files that it is told by. It is immutable once read.
type Config struct {
	chains   []*chain
	tables   []*tree // route configurations outside of chains
	clusters []*tree
	vhosts   []*tree // names of virtual hosts by which an EnvoyFilter is put in its place
	network  []*tree // network filters
	// allClusters tells that there are no others, moreClusters that there may be.
	allClusters, moreClusters bool
	// dumped are the files that an Envoy wrote, which leaves out what is as it is by default.
	dumped  map[string]bool
	setting setting
}

// chain is the HTTP filters of a listener's connection manager, or the filters of a Thrift proxy.
type chain struct {
	name    string
	manager *tree // nil: it isn't known
	thrift  bool
	filters []filter
	table   *tree  // its own route configuration, or nil
	rds     string // the name of the one that comes from elsewhere
	scoped  bool   // any could be its own
	partial bool   // it has more filters than these, as those that an EnvoyFilter inserts
}

// filter is an HTTP filter.
type filter struct {
	name, kind string // kind is "" if it comes from elsewhere
	at, config *tree
	disabled   bool
	merged     bool // into one with more fields
	misplaced  bool // behind the router
}

const (
	globalLimit     = "envoy.extensions.filters.http.ratelimit.v3.RateLimit"
	globalRoute     = "envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute"
	localLimit      = "envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit"
	networkLimit    = "envoy.extensions.filters.network.ratelimit.v3.RateLimit"
	router          = "envoy.extensions.filters.http.router.v3.Router"
	manager         = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
	routeTable      = "envoy.config.route.v3.RouteConfiguration"
	clusterType     = "envoy.config.cluster.v3.Cluster"
	httpOptions     = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
	filterConfig    = "envoy.config.route.v3.FilterConfig"
	bootstrapDump   = "envoy.admin.v3.BootstrapConfigDump"
	clustersDump    = "envoy.admin.v3.ClustersConfigDump"
	routerName      = "envoy.filters.http.router"
	formatterLayer  = "envoy.reloadable_features.enable_formatter_for_ratelimit_action_descriptor_value"
	envoyFilterKind = "EnvoyFilter"
)

// Read reads files that together configure one Envoy, each a bootstrap, a route configuration, an xDS resource
// file, Istio's EnvoyFilters, or what an Envoy's /config_dump says. What else is in them is not looked at.
// The error says which file can't be read or has nothing of these.
func Read(files []descriptors.File) (*Config, error) {
	c := &Config{dumped: map[string]bool{}}
	for _, f := range files {
		docs, err := parse(f.Name, f.Data)
		if err != nil {
			return nil, err
		}
		before := c.size()
		for _, doc := range docs {
			c.document(doc)
		}
		if c.size() == before {
			return nil, fmt.Errorf("%s: nothing of an Envoy is in it: want a bootstrap, a route configuration, an EnvoyFilter, or what /config_dump says", f.Name)
		}
	}
	return c, nil
}

func (c *Config) size() int {
	return len(c.chains) + len(c.tables) + len(c.clusters) + len(c.vhosts) + len(c.network)
}

func (c *Config) document(t *tree) {
	switch {
	case t.get("kind").str() == envoyFilterKind:
		c.envoyFilter(t)
		return
	case t.get("kind").str() == "List": // of kubectl
		for _, item := range t.get("items").items() {
			c.document(item)
		}
		return
	case t.has("static_resources"):
		c.bootstrap(t)
		dynamic := t.get("dynamic_resources")
		c.moreClusters = dynamic.has("cds_config") || dynamic.has("ads_config")
		c.allClusters = !c.moreClusters
	}
	c.walk(t, "")
}

// bootstrap reads what is known of an Envoy as a whole.
func (c *Config) bootstrap(t *tree) {
	c.setting.serviceCluster = t.get("node", "cluster").str()
	for _, layer := range t.get("layered_runtime", "layers").items() {
		if layer.get("static_layer", formatterLayer).isTrue() {
			c.setting.formats = true
		}
	}
}

// walk looks for what is of interest below t, wherever it stands: a bootstrap, a dump and an xDS resource have it
// at different depths. name is that of the listener that t is in.
func (c *Config) walk(t *tree, name string) {
	for _, item := range t.items() {
		c.walk(item, name)
	}
	if !t.isMapping() || c.take(t, name) {
		return
	}
	if t.has("filter_chains") || t.has("default_filter_chain") {
		name = t.get("name").str()
	}
	for i, key := range t.keys {
		if key != nil && key.text == "clusters" {
			c.clusters = append(c.clusters, t.values[i].items()...)
			continue
		}
		c.walk(t.values[i], name)
	}
}

// take keeps t if it is of interest as a whole.
func (c *Config) take(t *tree, name string) bool {
	kind, message := t.typed()
	if strings.HasPrefix(kind, "envoy.admin.") {
		c.dumped[t.file] = true
	}
	switch {
	case kind == manager:
		c.manager(message, name)
	case kind == thriftProxy:
		c.thrift(message, name)
	case kind == networkLimit:
		c.network = append(c.network, message)
	case kind == routeTable || t.get("virtual_hosts").isList():
		c.tables = append(c.tables, message)
	case kind == clusterType:
		c.clusters = append(c.clusters, message)
	case kind == bootstrapDump: // the other dumps have its listeners and clusters
		c.bootstrap(t.get("bootstrap"))
	case kind == clustersDump:
		c.allClusters = true
		return false
	default:
		return false
	}
	return true
}

// manager reads an HTTP connection manager.
func (c *Config) manager(t *tree, name string) {
	if name == "" {
		name = t.get("stat_prefix").str()
	}
	chain := &chain{
		name: name, manager: t, table: t.get("route_config"), rds: t.get("rds", "route_config_name").str(), scoped: t.has("scoped_routes"),
	}
	chain.add(t.get("http_filters").items())
	c.chains = append(c.chains, chain)
}

// add adds filters to the chain.
func (ch *chain) add(filters []*tree) {
	routed := false
	for _, f := range filters {
		filter := newFilter(f)
		filter.misplaced = routed
		routed = routed || filter.kind == router
		ch.filters = append(ch.filters, filter)
	}
}

func newFilter(t *tree) filter {
	f := filter{name: t.get("name").str(), at: t, disabled: t.get("disabled").isTrue()}
	config := t.get("typed_config")
	if wrapped := config.get("extension_config", "typed_config"); wrapped != nil { // with a matcher
		config = wrapped
	}
	f.kind, f.config = config.typed()
	switch {
	case f.name == routerName:
		f.kind = router
	case f.kind == thriftLimit:
		f.kind = globalLimit
	}
	return f
}

// envoyFilter reads the patches of an EnvoyFilter of Istio. What they are patched into isn't known.
func (c *Config) envoyFilter(t *tree) {
	for _, patch := range t.get("spec", "config_patches").items() {
		value, operation := patch.get("patch", "value"), patch.get("patch", "operation").str()
		match := patch.get("match", "route_configuration", "vhost")
		if name := match.get("name"); name != nil {
			c.vhosts = append(c.vhosts, name)
		}
		switch patch.get("apply_to").str() {
		case "HTTP_FILTER":
			c.inserted(patch, newFilter(value), operation)
		case "ROUTE_CONFIGURATION":
			c.tables = append(c.tables, value)
		case "VIRTUAL_HOST":
			c.tables = append(c.tables, hostTable(value))
		case "HTTP_ROUTE":
			c.tables = append(c.tables, hostTable(mapping("routes", list(value))))
		case "CLUSTER":
			if operation == "ADD" {
				c.clusters = append(c.clusters, value)
			}
		default:
			if operation != "MERGE" {
				c.walk(value, "")
			}
		}
	}
}

// inserted adds a filter that an EnvoyFilter brings to the chain of those.
func (c *Config) inserted(patch *tree, f filter, operation string) {
	if f.kind == "" {
		return
	}
	beside := patch.get("match", "listener", "filter_chain", "filter", "sub_filter", "name").str()
	f.merged = operation == "MERGE"
	f.misplaced = operation == "ADD" || operation == "INSERT_AFTER" && beside == routerName
	i := slices.IndexFunc(c.chains, func(c *chain) bool { return c.partial })
	if i < 0 {
		i = len(c.chains)
		c.chains = append(c.chains, &chain{name: envoyFilterKind, partial: true})
	}
	c.chains[i].filters = append(c.chains[i].filters, f)
}

// hostTable is a route configuration with one virtual host. One that says nothing of routes has a route that
// forwards.
func hostTable(host *tree) *tree {
	if host != nil && !host.has("routes") {
		with := *host
		routes := mapping("routes", list(&tree{tag: "!!map"}))
		with.keys, with.values = slices.Concat(host.keys, routes.keys), slices.Concat(host.values, routes.values)
		host = &with
	}
	return mapping("virtual_hosts", list(host))
}

// mapping is a mapping with one field, which is in no file.
func mapping(name string, value *tree) *tree {
	return &tree{tag: "!!map", keys: []*tree{{tag: "!!str", text: name}}, values: []*tree{value}}
}

// list is a list of one item, which is in no file.
func list(item *tree) *tree { return &tree{tag: "!!seq", values: []*tree{item}} }
