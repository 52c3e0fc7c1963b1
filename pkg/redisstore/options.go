package redisstore

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// The bounds of the time that a call may take when Options leave Timeout out.
const (
	minTimeout = 5 * time.Millisecond
	maxTimeout = 50 * time.Millisecond
)

// Options are a Store's settings.
type Options struct {
	// Address is a URL (redis://user:password@host:port/db, rediss:// for TLS, unix://path), host:port, or
	// the path of a unix socket.
	Address string
	// SocketType is tcp or unix, for an Address that is no URL; "" goes by its looks.
	SocketType string
	// Auth is a password, or user:password; it wins over the Address.
	Auth string
	// Prefix starts the name of every key, as it is.
	Prefix string
	// Timeout bounds a call, dialling and resending included; 0 is half of what the caller has left, from
	// 5 to 50 ms.
	Timeout time.Duration
	// PoolSize is the number of connections; 0 is ten for each CPU.
	PoolSize int
	// Called, if it is not nil, is told of each call of the script that was answered: how many requests
	// shared it, and how long it took. Calls may be told of at once.
	Called func(requests int, took time.Duration)
	// BreakerChanged, if it is not nil, is told of each change of the breaker between open and closed, in order, and
	// of the failure that opened it. It must return soon.
	BreakerChanged func(s BreakerState, cause error)
	// HashTags is over how many tags counters are spread; 0 is 1. All processes must agree on it.
	HashTags int
	// InFlight is the number of script calls that may be under way at once; 0 is 1, or up to 4 as the round
	// trip grows.
	InFlight int
}

// Validate reports what is wrong with o, without telling its secrets, or nil.
func (o Options) Validate() error {
	_, err := o.client()
	return err
}

// client returns the settings of a connection, or Validate's error.
func (o Options) client() (*redis.Options, error) {
	c, err := parseAddress(o.Address, o.SocketType)
	if err != nil {
		return nil, err
	}
	if o.Auth != "" {
		c.Username, c.Password = "", o.Auth
		if user, password, found := strings.Cut(o.Auth, ":"); found {
			c.Username, c.Password = user, password
		}
	}
	if strings.ContainsAny(o.Prefix, "{}") {
		return nil, fmt.Errorf("key prefix %q holds a brace, which would move keys between a cluster's slots", o.Prefix)
	}
	c.PoolSize = o.PoolSize
	// A call that timed out may have counted: sending it again would count twice.
	c.MaxRetries = -1
	c.DialerRetries = 1
	c.ContextTimeoutEnabled = true
	// Both greetings are refused by servers whose ACL doesn't name them, and neither is of use here.
	c.DisableIdentity = true
	c.Dialer = newDialer(c).dial
	c.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return c, nil
}

func parseAddress(address, socketType string) (*redis.Options, error) {
	switch {
	case address == "":
		return nil, errors.New("the address is empty")
	case strings.Contains(address, "://"):
		c, err := redis.ParseURL(address)
		if err != nil {
			return nil, fmt.Errorf("not a Redis URL (redis://user:password@host:6379/0, rediss://… or unix:///path): %s",
				withoutSecrets(err, address))
		}
		if c.Network == "unix" {
			return c, nil
		}
		return c, checkPort(c.Addr)
	case strings.Contains(address, "@"):
		return nil, errors.New("it has an @ and no scheme; write redis://user:password@host:port")
	case socketType == "unix", socketType == "" && strings.HasPrefix(address, "/"):
		return &redis.Options{Network: "unix", Addr: address}, nil
	}
	return &redis.Options{Addr: address}, checkPort(address)
}

func checkPort(address string) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%q is neither a URL, host:port such as localhost:6379, nor the path of a socket", address)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("%q: the port is a number from 1 to 65535", address)
	}
	return nil
}

// withoutSecrets is err's text unless it quotes a part of the address, which may be the password.
func withoutSecrets(err error, address string) string {
	text := err.Error()
	for start := range len(address) - 3 {
		if strings.Contains(text, address[start:start+4]) {
			return "it can't be parsed"
		}
	}
	return strings.TrimPrefix(text, "redis: ")
}
