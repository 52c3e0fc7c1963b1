package redisstore

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// The bounds of the time that a call may take when Options leave Timeout out.
const (
	minTimeout = 5 * time.Millisecond
	maxTimeout = 50 * time.Millisecond
)

const defaultDialTimeout = 5 * time.Second

// Options are a Store's settings.
type Options struct {
	// Address is a URL (redis://user:password@host:port/db, rediss:// for TLS, unix://path,
	// redis+sentinel://host:port,host:port/master, redis+cluster://host:port,host:port), host:port, or the path of a
	// unix socket. With a Kind it may be as in the service that this one replaces: host:port,… of a cluster, and
	// master,host:port,… with sentinels.
	Address string
	// Kind is how the servers are set up; "" goes by the Address.
	Kind Kind
	// SocketType is tcp or unix, for an Address that is no URL; "" goes by its looks.
	SocketType string
	// Auth is a password, or user:password; it wins over the Address.
	Auth string
	// AuthFile holds the same, is read for every connection, and wins over Auth.
	AuthFile string
	// SentinelAuth and SentinelFile are the same for sentinels.
	SentinelAuth, SentinelFile string
	// TLS secures connections, also those to sentinels.
	TLS TLS
	// Prefix starts the name of every key, as it is.
	Prefix string
	// Timeout bounds a call, dialling and resending included; 0 is half of what the caller has left, from
	// 5 to 50 ms.
	Timeout time.Duration
	// DialTimeout bounds connecting, TLS's handshake included; 0 is 5 s.
	DialTimeout time.Duration
	// PoolSize is the number of connections to a server; 0 is ten for each CPU.
	PoolSize int
	// ConnMaxLifetime closes connections that are older, when they are next used; 0 is never.
	ConnMaxLifetime time.Duration
	// Called, if it is not nil, is told of each call of the script that was answered: how many requests
	// shared it, how long the one that came first had waited for it, and how long it took. Calls may be told of at once.
	Called func(requests int, waited, took time.Duration)
	// Trace, if it is not nil, is told on the request's own goroutine when a lane begins to decide for a request, and what it
	// returns how that ended: how many requests shared the script call, or 0 if it gave no decisions, and the *Failure or
	// nil. It may return nil.
	Trace func(ctx context.Context, lane string) func(requests int, err error)
	// BreakerChanged, if it is not nil, is told of each change of a lane's breaker between open and closed, in order, and
	// of the failure that opened it. It must return soon.
	BreakerChanged func(lane string, s BreakerState, cause error)
	// HashTags is over how many tags counters are spread; 0 is 1, and 16 in a cluster. All processes must agree on it.
	HashTags int
	// NamedWindows says that there will be hits of a limiter.NamedWindow, whose keys are Prefix and the hit's Key, and
	// nothing else. A cluster can't have them: without tags they lie in any slots, and no script decides over several.
	NamedWindows bool
	// InFlight is the number of script calls that may be under way at once; 0 is 1, or up to 4 as the round
	// trip grows.
	InFlight int
}

// Validate reports what is wrong with o, without telling its secrets, or nil.
func (o Options) Validate() error {
	_, err := o.target()
	return err
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
