package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Kind is how servers are set up.
type Kind string

// The kinds.
const (
	Single   Kind = "single"
	Sentinel Kind = "sentinel"
	Cluster  Kind = "cluster"
)

// clusterTags is over how many tags counters are spread in a cluster, unless Options say otherwise: enough for
// several nodes, and few enough that requests still share calls.
const clusterTags = 16

// target is where the servers are, and how to connect.
type target struct {
	kind     Kind
	network  string // tcp, or unix for a single server
	addrs    []string
	master   string // the name that sentinels know
	db       int
	username string
	password string
	tls      bool

	options *Options
}

// String is where the servers are, without secrets.
func (t *target) String() string {
	list := strings.Join(t.addrs, ",")
	if t.kind == Sentinel {
		return list + "/" + t.master
	}
	return list
}

// target reads o, or reports what is wrong with it.
func (o Options) target() (*target, error) {
	t, err := parseAddress(&o)
	if err != nil {
		return nil, err
	}
	t.options = &o
	o.DialTimeout = cmp.Or(o.DialTimeout, defaultDialTimeout)
	if o.Auth != "" {
		t.username, t.password = splitAuth(o.Auth)
	}
	switch {
	case strings.ContainsAny(o.Prefix, "{}"):
		return nil, fmt.Errorf("key prefix %q holds a brace, which would move keys between a cluster's slots", o.Prefix)
	case t.kind == Cluster && t.db != 0:
		return nil, errors.New("a cluster has database 0 only")
	case t.kind == Cluster && o.NamedWindows:
		return nil, errors.New("a cluster can't count under the replaced service's keys: they have no hash tags, so those of a " +
			"request lie in several slots, where no script can decide them together; keep the key format envoy-rls, with which counters begin anew")
	}
	if t.tls = t.tls || o.TLS.On; t.tls {
		_, err = o.TLS.config("")
	}
	return t, err
}

// splitAuth reads password, or user:password.
func splitAuth(auth string) (username, password string) {
	if user, password, found := strings.Cut(auth, ":"); found {
		return user, password
	}
	return "", auth
}

// schemes are the kinds of servers that URLs can be for, and whether they use TLS.
var schemes = map[string]struct {
	kind Kind
	tls  bool
}{
	"redis": {Single, false}, "rediss": {Single, true},
	"redis+sentinel": {Sentinel, false}, "rediss+sentinel": {Sentinel, true},
	"redis+cluster": {Cluster, false}, "rediss+cluster": {Cluster, true},
}

func parseAddress(o *Options) (*target, error) {
	address := o.Address
	scheme, rest, isURL := strings.Cut(address, "://")
	switch {
	case address == "":
		return nil, errors.New("the address is empty")
	case isURL && scheme == "unix":
		return parseSocket(address)
	case isURL:
		return parseURL(scheme, rest, o.Kind)
	case strings.Contains(address, "@"):
		return nil, errors.New("it has an @ and no scheme; write redis://user:password@host:port")
	case o.SocketType == "unix", o.SocketType == "" && strings.HasPrefix(address, "/"):
		return &target{kind: Single, network: "unix", addrs: []string{address}}, nil
	}
	t := &target{kind: Single, network: "tcp", addrs: strings.Split(address, ",")}
	switch o.Kind {
	case Sentinel: // as the replaced service has it: the master's name first
		t.kind, t.master, t.addrs = Sentinel, t.addrs[0], t.addrs[1:]
		if len(t.addrs) == 0 {
			return nil, fmt.Errorf("%q is not name,host:port,…: the master's name, then sentinels", address)
		}
	case Cluster:
		t.kind = Cluster
	case Single, "":
		if len(t.addrs) > 1 {
			return nil, errors.New("it lists several servers; write redis+cluster://host:port,host:port " +
				"or redis+sentinel://host:port,host:port/master")
		}
	}
	return t, t.checkPorts()
}

func parseSocket(address string) (*target, error) {
	o, err := redis.ParseURL(address)
	if err != nil {
		return nil, fmt.Errorf("not the URL of a socket (unix:///path): %s", withoutSecrets(err, address))
	}
	return &target{kind: Single, network: "unix", addrs: []string{o.Addr}, db: o.DB, username: o.Username, password: o.Password}, nil
}

// parseURL reads what stands behind a scheme: user:password@host:port,host:port/path.
func parseURL(scheme, rest string, kind Kind) (*target, error) {
	s, known := schemes[scheme]
	if !known {
		return nil, errors.New("not a Redis URL (redis://user:password@host:6379/0, rediss://…, unix:///path, " +
			"redis+sentinel://host:26379,host:26379/master, redis+cluster://host:6379,host:6379)")
	}
	if s.kind == Single && kind != "" {
		s.kind = kind
	}
	t := &target{kind: s.kind, network: "tcp", tls: s.tls}
	authority, path, _ := strings.Cut(rest, "/")
	path, query, _ := strings.Cut(path, "?")
	if at := strings.LastIndex(authority, "@"); at >= 0 {
		user, err := url.Parse("redis://" + authority[:at] + "@h")
		if err != nil {
			return nil, errors.New("not a Redis URL: its user and password can't be read; write % of them as %25, and / as %2F")
		}
		t.username = user.User.Username()
		t.password, _ = user.User.Password()
		authority = authority[at+1:]
	}
	t.addrs = strings.Split(authority, ",")
	t.defaultPorts()
	if t.kind == Sentinel {
		t.master, path, _ = strings.Cut(path, "/")
		if t.master == "" {
			return nil, errors.New("the URL ends in the master's name: redis+sentinel://host:26379/mymaster")
		}
	}
	if values, err := url.ParseQuery(query); err == nil && values.Has("db") {
		path = values.Get("db")
	}
	if path != "" {
		if _, err := fmt.Sscanf(path+"\n", "%d\n", &t.db); err != nil || t.db < 0 {
			return nil, fmt.Errorf("the database %q is not a number", path)
		}
	}
	return t, t.checkPorts()
}

func (t *target) defaultPorts() {
	port := ":6379"
	if t.kind == Sentinel {
		port = ":26379"
	}
	for i, addr := range t.addrs {
		if strings.LastIndex(addr, ":") <= strings.LastIndex(addr, "]") && addr != "" {
			t.addrs[i] = addr + port
		}
	}
}

func (t *target) checkPorts() error {
	for _, addr := range t.addrs {
		if err := checkPort(addr); err != nil {
			return err
		}
	}
	return nil
}

// open makes a client. It connects to nobody yet.
func (t *target) open() (redis.UniversalClient, *nodes) {
	o := t.options
	dial := newDialer(t).dial
	switch t.kind {
	case Sentinel:
		return t.failover(dial), nil
	case Cluster:
		n := &nodes{clients: map[string]*redis.Client{}}
		n.cluster = redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: t.addrs, CredentialsProviderContext: t.credentials, Dialer: dial, DialTimeout: o.DialTimeout, PoolSize: o.PoolSize,
			ConnMaxLifetime: o.ConnMaxLifetime, NewClient: n.newClient, MaxRedirects: -1,
			MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true, DisableIdentity: true, Protocol: protocol,
			MaintNotificationsConfig: noNotifications(),
		})
		return n.cluster, n
	case Single:
	}
	return redis.NewClient(t.single(dial)), nil
}

func (t *target) single(dial dialFunc) *redis.Options {
	return &redis.Options{
		Network: t.network, Addr: t.addrs[0], DB: t.db, CredentialsProviderContext: t.credentials, Dialer: dial,
		DialTimeout: t.options.DialTimeout, PoolSize: t.options.PoolSize, ConnMaxLifetime: t.options.ConnMaxLifetime,
		// A call that timed out may have counted: sending it again would count twice.
		MaxRetries:            -1,
		DialerRetries:         1,
		ContextTimeoutEnabled: true,
		// Both greetings are refused by servers whose ACL doesn't name them, and neither is of use here.
		DisableIdentity:          true,
		MaintNotificationsConfig: noNotifications(),
		Protocol:                 protocol,
	}
}

// protocol is RESP's version. In the third, servers can push messages between replies, which would be looked for
// around each call.
const protocol = 2

func noNotifications() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

// credentials are read for every connection, so that they can be changed without a restart.
func (t *target) credentials(context.Context) (username, password string, err error) {
	if t.options.AuthFile == "" {
		return t.username, t.password, nil
	}
	return credentials("", t.options.AuthFile)
}

// credentials are those of a file now, or without one those given.
func credentials(auth, file string) (username, password string, err error) {
	if file != "" {
		if auth, err = readSecret(file); err != nil {
			return "", "", err
		}
	}
	username, password = splitAuth(auth)
	return username, password, nil
}

// kinds are the names of the kinds.
func kinds() []string { return []string{string(Single), string(Sentinel), string(Cluster)} }

// ParseKind reads a kind's name in any case.
func ParseKind(name string) (Kind, error) {
	if lower := strings.ToLower(name); slices.Contains(kinds(), lower) {
		return Kind(lower), nil
	}
	return "", fmt.Errorf("want one of %s", strings.Join(kinds(), ", "))
}
